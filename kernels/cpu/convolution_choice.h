// Which of two ways a convolution in f32 takes: oneDNN's own, or products of patches.
#ifndef TESSERA_KERNELS_CPU_CONVOLUTION_CHOICE_H_
#define TESSERA_KERNELS_CPU_CONVOLUTION_CHOICE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/convolution.h"
#include "kernels/cpu/convolution.h"
#include "kernels/cpu/patch_convolution.h"
#include "kernels/cpu/threads.h"

namespace tessera {

// The choice follows from the shape and from the processor, so that a job on one kind of processor has the same bits in
// every run.
class CpuConvolutionChoice final : public ConvolutionKernel<float> {
 public:
  // `has_avx512`: what oneDNN may use.
  CpuConvolutionChoice(const CpuThreads& threads, bool has_avx512)
      : own_(threads), patches_(threads), has_avx512_(has_avx512) {}

  void Forward(const ImagesShape& shape, const float* x, const float* weight, const float* bias,
               float* y) override;
  void WeightGradient(const ImagesShape& shape, const float* x, const float* dy, WriteMode mode,
                      float* dweight) override;
  void InputGradient(const ImagesShape& shape, const float* dy, const float* weight,
                     float* dx) override;
  int64_t ScratchBytes(const ImagesShape&) const override { return 0; }

  // Takes the first failure since the last call.
  absl::Status TakeStatus();

 private:
  // Either, for a convolution that products of patches would do.
  ConvolutionKernel<float>& Choose(bool patches_are_faster);

  CpuConvolution<float> own_;
  CpuPatchConvolution patches_;
  const bool has_avx512_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_CONVOLUTION_CHOICE_H_
