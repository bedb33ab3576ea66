// Convolutions by oneDNN.
#ifndef TESSERA_KERNELS_CPU_CONVOLUTION_H_
#define TESSERA_KERNELS_CPU_CONVOLUTION_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/bf16.h"
#include "kernels/convolution.h"
#include "kernels/cpu/threads.h"

namespace tessera {

// Images are read and written where they lie; weights, which are small, go through the order that
// oneDNN's kernel for the shape likes best.
template <typename T>
class CpuConvolution final : public ConvolutionKernel<T> {
 public:
  explicit CpuConvolution(const CpuThreads& threads);
  ~CpuConvolution() override;

  void Forward(const ImagesShape& shape, const T* x, const T* weight, const float* bias,
               float* y) override;
  void WeightGradient(const ImagesShape& shape, const T* x, const T* dy, WriteMode mode,
                      float* dweight) override;
  void InputGradient(const ImagesShape& shape, const T* dy, const T* weight, float* dx) override;
  int64_t ScratchBytes(const ImagesShape&) const override { return 0; }

  // Takes the first failure since the last call.
  absl::Status TakeStatus();

 private:
  struct Engine;
  struct Prepared;
  enum class Kind {
    kForward,
    kForwardWithBias,
    kWeightGradient,
    kWeightGradientAdded,
    kInputGradient
  };
  using Key = std::array<int64_t, 15>;
  // The arguments' addresses, by oneDNN's number of the argument.
  using Values = std::initializer_list<std::pair<int, const void*>>;

  Prepared& PreparedFor(Kind kind, const ImagesShape& shape);
  Prepared Prepare(Kind kind, const ImagesShape& shape) const;
  // What windows of one pixel see of x where they stride, one after the other: oneDNN 2.6 does so itself, and with AVX2
  // writes beyond its memory in the gradient of their weights (jit_1x1). nullptr: there is no memory.
  const T* Gather(const ImagesShape& shape, const T* x);
  // `weights` are read or, of a gradient, written.
  void Run(Kind kind, const ImagesShape& shape, const Values& values, const void* weights);

  const CpuThreads threads_;
  const std::unique_ptr<Engine> engine_;
  std::map<Key, Prepared> prepared_;
  absl::Status status_;
};

extern template class CpuConvolution<float>;
extern template class CpuConvolution<Bf16>;

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_CONVOLUTION_H_
