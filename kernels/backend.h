// One device at work: its memory and its arithmetic.
#ifndef TESSERA_KERNELS_BACKEND_H_
#define TESSERA_KERNELS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/batch_norm.h"
#include "kernels/bf16.h"
#include "kernels/convolution.h"
#include "kernels/embedding.h"
#include "kernels/exchange.h"
#include "kernels/group_norm.h"
#include "kernels/linear.h"
#include "kernels/loss.h"
#include "kernels/memory.h"
#include "kernels/pooling.h"
#include "kernels/response_norm.h"
#include "kernels/sequence.h"
#include "kernels/shape.h"
#include "kernels/shortcuts.h"
#include "kernels/sparse_linear.h"
#include "kernels/vector.h"

namespace tessera {

// Kernels are queued: a call may return before its work is done, work is done in the order of the
// calls, and the first failure is what Finish reports. Arguments are addresses in this backend's
// memory.
//
// The same calls with the same bytes give the same bits, run to run, on the same device with the
// same options.
//
// Threading: one thread at a time.
//
// It has more public methods than other classes: one for each kernel. A device has all of them or none, and whoever
// trains holds one.
class Backend {
 public:
  virtual ~Backend() = default;

  // The device in words, for the report: "cpu (8 threads, avx512_core_bf16)".
  virtual std::string description() const = 0;
  // The GPU's name, for the report; empty where there is none.
  virtual std::string gpu() const = 0;
  // The shortcuts that were taken since the backend was made.
  virtual Shortcuts shortcuts() const = 0;

  virtual Memory& memory() = 0;
  virtual LinearKernel<float>& linear() = 0;
  // The product of bf16 factors, owned by the backend. kFailedPrecondition where the device has no bf16
  // arithmetic.
  virtual absl::StatusOr<LinearKernel<Bf16>*> linear_bf16() = 0;
  // The product whose factors are rounded to 10 bits of mantissa, where the device has it.
  virtual absl::StatusOr<LinearKernel<float>*> linear_tf32() = 0;
  // Convolutions in the precisions of linear, linear_bf16 and linear_tf32.
  virtual ConvolutionKernel<float>& convolution() = 0;
  virtual absl::StatusOr<ConvolutionKernel<Bf16>*> convolution_bf16() = 0;
  virtual absl::StatusOr<ConvolutionKernel<float>*> convolution_tf32() = 0;
  virtual PoolingKernel& pooling() = 0;
  virtual SparseLinearKernel& sparse_linear() = 0;
  virtual BatchNormKernel& batch_norm() = 0;
  virtual GroupNormKernel& group_norm() = 0;
  virtual ResponseNormKernel& response_norm() = 0;
  virtual AttentionKernel& attention() = 0;
  virtual EmbeddingKernel& embedding() = 0;
  virtual ActivationKernel& activation() = 0;
  virtual LossKernel& loss() = 0;
  virtual VectorKernel& vector() = 0;
  virtual ExchangeKernel& exchange() = 0;

  virtual std::unique_ptr<Sequence> MakeSequence() = 0;

  // Names this moment: everything queued so far, copies included. Wait returns when that is done, and
  // reports as Finish does. The latest kMoments may be waited for. A Memory::Send that comes after it
  // waits for it, too.
  using Moment = uint64_t;
  static constexpr int kMoments = 2;
  virtual Moment Mark() = 0;
  virtual absl::Status Wait(Moment moment) = 0;

  // The failure that is known so far, as Finish reports it; waits for nothing.
  virtual absl::Status TakeFailure() = 0;

  // Waits until everything queued is done. Reports the first failure since the last Finish; what
  // was queued behind it is undefined.
  virtual absl::Status Finish() = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_BACKEND_H_
