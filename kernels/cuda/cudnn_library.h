// Convolutions by cuDNN, where a machine has it.
//
// Loaded when it is first asked for, never linked: half a gigabyte that only jobs with convolutions want. A build
// whose toolkit has no cudnn.h goes without.
//
// Of cuDNN's algorithms those that sum products as they are, in an order of their own that does not
// change from run to run: IMPLICIT_PRECOMP_GEMM or IMPLICIT_GEMM forward, ALGO_1 backward. No Winograd, no
// FFT, whose roundings are others.
#ifndef TESSERA_KERNELS_CUDA_CUDNN_LIBRARY_H_
#define TESSERA_KERNELS_CUDA_CUDNN_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "kernels/cuda/convolution_pass.h"

namespace tessera::cuda {

// Threading: as the Device that owns it.
class CudnnLibrary {
 public:
  // Work is queued on `stream`, a cudaStream_t of the calling thread's GPU.
  //   kNotFound            no libcudnn.so.9 that can be loaded, or no cudnn.h when this was built
  //   kFailedPrecondition  one that is of another CUDA, or that does not start
  static absl::StatusOr<std::unique_ptr<CudnnLibrary>> Open(void* stream);
  ~CudnnLibrary();

  const std::string& name() const;  // "cuDNN 9.19.0"

  // Bytes of device memory that Run wants besides its arguments, kWorkspaceBytesMax at most; absent: it cannot
  // compute this pass.
  absl::optional<int64_t> WorkspaceBytes(const ConvolutionPass& pass);

  // Queues it. `workspace` has WorkspaceBytes, aligned to 256.
  //   kUnimplemented  it cannot after all, nothing was queued, and it will say so from now on. Only the first
  //                   time that a pass is done
  //   kInternal       cuDNN's failure
  absl::Status Run(const ConvolutionPass& pass, void* workspace);

 private:
  struct State;
  explicit CudnnLibrary(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_CUDNN_LIBRARY_H_
