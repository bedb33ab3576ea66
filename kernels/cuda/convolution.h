// Convolutions as matrix products by cuBLAS, over patches that a kernel of ours lays out. Not by cuDNN: no
// code of it could be run where this is developed, and these run wherever products do.
#ifndef TESSERA_KERNELS_CUDA_CONVOLUTION_H_
#define TESSERA_KERNELS_CUDA_CONVOLUTION_H_

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/convolution.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"

namespace tessera {

// Where windows are single places one beside the other the images are the patches.
template <typename T>
class CudaConvolution final : public ConvolutionKernel<T> {
 public:
  // Of patches at a time; more where a single image has them.
  static constexpr int64_t kPatchBytes = int64_t{64} << 20;

  CudaConvolution(cuda::Device* device, cuda::Product::Factors factors, CudaScratch* scratch,
                  int64_t patch_bytes = kPatchBytes)
      : device_(*device), factors_(factors), scratch_(*scratch), patch_bytes_(patch_bytes) {}

  void Forward(const ImagesShape& shape, const T* x, const T* weight, const float* bias,
               float* y) override;
  void WeightGradient(const ImagesShape& shape, const T* x, const T* dy, WriteMode mode,
                      float* dweight) override;
  void InputGradient(const ImagesShape& shape, const T* dy, const T* weight, float* dx) override;
  int64_t ScratchBytes(const ImagesShape& shape) const override;

 private:
  struct Part {
    int64_t images;
    int64_t bytes;  // of their patches
  };
  // What is done at a time with patches of V.
  template <typename V>
  Part PartOf(const ImagesShape& shape) const;
  // Calls f(first, images, room for their patches of V) for parts of the images.
  template <typename V, typename F>
  void ForParts(const ImagesShape& shape, const F& f);
  // Calls f(first, images, their patches).
  template <typename F>
  void ForPatches(const ImagesShape& shape, const T* x, const F& f);

  cuda::Device& device_;
  const cuda::Product::Factors factors_;
  CudaScratch& scratch_;
  const int64_t patch_bytes_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_CONVOLUTION_H_
