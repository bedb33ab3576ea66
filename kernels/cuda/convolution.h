// Convolutions by cuDNN where the machine has it, else as matrix products by cuBLAS over patches
// that a kernel of ours lays out.
//
// cuDNN reads images where they lie and needs no patches. It has no convolution of bf16 whose
// result is f32; but tf32 holds what bf16 does, so that factors of bf16 are widened to f32, so many
// images at a time, and tf32 of those is the same: exact products, sums in f32. It may not know a
// shape; arrays that are not aligned for it, images that are patches, and what products are faster
// at are products' as well.
#ifndef TESSERA_KERNELS_CUDA_CONVOLUTION_H_
#define TESSERA_KERNELS_CUDA_CONVOLUTION_H_

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/convolution.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"
#include "kernels/shortcuts.h"

namespace tessera {

struct CudaConvolutionOptions {
  // Bytes of patches that are laid out at a time; more where a single image has more.
  int64_t patch_bytes = int64_t{64} << 20;
  // Whether cuDNN may be used; otherwise there are products, whatever the machine has.
  bool cudnn = true;
  // Whether cuDNN is used even where products are known to be faster.
  bool cudnn_if_slower = false;
  // Bytes of bf16 images that are widened to f32 for cuDNN at a time; more where a single image has more.
  int64_t widened_bytes = int64_t{64} << 20;
};

// Convolutions on the GPU, by cuDNN or as products over patches, one for each group of channels. Where windows are
// single places one beside the other the images themselves are the patches.
template <typename T>
class CudaConvolution final : public ConvolutionKernel<T> {
 public:
  CudaConvolution(cuda::Device* device, cuda::Product::Factors factors, CudaScratch* scratch,
                  Shortcuts* shortcuts, const CudaConvolutionOptions& options)
      : device_(*device),
        factors_(factors),
        scratch_(*scratch),
        shortcuts_(*shortcuts),
        options_(options) {}

  void Forward(const ImagesShape& shape, const T* x, const T* weight, const float* bias,
               float* y) override;
  void WeightGradient(const ImagesShape& shape, const T* x, const T* dy, WriteMode mode,
                      float* dweight) override;
  void InputGradient(const ImagesShape& shape, const T* dy, const T* weight, float* dx) override;
  int64_t ScratchBytes(const ImagesShape& shape) const override;

 private:
  using Kind = cuda::ConvolutionPass::Kind;

  // Whether cuDNN is asked at all.
  bool MayConvolve(const ImageMap& map) const;
  // Has cuDNN compute c of a and b, as ConvolutionPass names them but for the order of weights, which is that of
  // ConvolutionKernel. Where it does not, false: nothing was written but scratch.
  bool Convolve(Kind kind, const ImagesShape& shape, const T* a, const T* b, float beta, float* c);
  // Images of a pass that are computed at a time: all, but where they are widened.
  int64_t ImagesOf(Kind kind, const ImagesShape& shape) const;
  // Calls f(first, shape of the images) for parts of so many.
  template <typename F>
  void ForPasses(Kind kind, const ImagesShape& shape, const F& f) const;

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
  // Queues the product of each group of channels: of_group(group) is one.
  template <typename F>
  void MultiplyGroups(const ImageMap& map, const F& of_group);

  cuda::Device& device_;
  const cuda::Product::Factors factors_;
  CudaScratch& scratch_;
  Shortcuts& shortcuts_;
  const CudaConvolutionOptions options_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_CONVOLUTION_H_
