#include "kernels/cuda/convolution.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/base/check.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/convolution_kernels.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/linear_kernels.h"

namespace tessera {
namespace {

using Kind = cuda::ConvolutionPass::Kind;

// Of the weights, and of the patches.
int64_t ColumnsOf(const ImageMap& map) { return map.from.channels * map.window.size(); }

// The most that a launch numbers of an image.
int64_t ItemsOf(const ImageMap& map) {
  return std::max({map.from.size(), map.to.positions(), ColumnsOf(map)});
}

bool AreImagesPatches(const ImageMap& map) {
  return map.window == Window() && map.from.positions() == map.to.positions();
}

int64_t WeightsBytes(const ImageMap& map) {
  // As the device aligns what it allocates, so that a workspace may lie behind them.
  const int64_t bytes = map.to.channels * ColumnsOf(map) * static_cast<int64_t>(sizeof(float));
  return cuda::CeilDiv(bytes, 256) * 256;
}

bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % cuda::ConvolutionPass::kAlignment == 0;
}

// Weights with the channels of x last, or back: of each channel of y, `rows` x `columns` are turned.
template <bool kAdds>
void Turn(const ImageMap& map, int64_t rows, int64_t columns, const float* from, float* to,
          cuda::Device* device) {
  const cuda::TurnWeights<kAdds> turn{{},
                                      static_cast<uint32_t>(map.to.channels * rows * columns),
                                      static_cast<uint32_t>(rows),
                                      static_cast<uint32_t>(columns),
                                      from,
                                      to};
  device->Launch(turn.blocks(), turn);
}

}  // namespace

template <typename T>
template <typename V>
typename CudaConvolution<T>::Part CudaConvolution<T>::PartOf(const ImagesShape& shape) const {
  const ImageMap& map = shape.map;
  const int64_t bytes = map.to.positions() * ColumnsOf(map) * static_cast<int64_t>(sizeof(V));
  const int64_t images =
      std::min(ImagesWithin(shape.rows, bytes, options_.patch_bytes),
               ImagesWithin(shape.rows, ItemsOf(map), cuda::ImageWindows::kItemsMax));
  return {images, images * bytes};
}

template <typename T>
int64_t CudaConvolution<T>::ScratchBytes(const ImagesShape& shape) const {
  if (AreImagesPatches(shape.map)) return 0;
  const int64_t patches = std::max(PartOf<T>(shape).bytes, PartOf<float>(shape).bytes);
  if (!MayConvolve(shape.map)) return patches;
  return std::max(patches, WeightsBytes(shape.map) + cuda::ConvolutionPass::kWorkspaceBytesMax);
}

template <typename T>
bool CudaConvolution<T>::MayConvolve(const ImageMap& map) const {
  return std::is_same_v<T, float> && options_.cudnn && !AreImagesPatches(map) &&
         ItemsOf(map) <= cuda::ImageWindows::kItemsMax / map.to.channels &&
         device_.HasConvolutions();
}

template <typename T>
bool CudaConvolution<T>::Convolve(cuda::ConvolutionPass::Kind kind, const ImagesShape& shape,
                                  const T* a, const T* b, float beta, float* c) {
  if constexpr (std::is_same_v<T, float>) {
    const ImageMap& map = shape.map;
    const bool to_weights = kind == Kind::kWeightGradient;
    if (!MayConvolve(map) || !IsAligned(a) || !IsAligned(to_weights ? b : c)) return false;
    cuda::ConvolutionPass pass;
    pass.kind = kind;
    pass.tf32 = factors_ == cuda::Product::Factors::kTf32;
    pass.shape = shape;
    const absl::optional<int64_t> workspace = device_.ConvolutionWorkspace(pass);
    if (!workspace.has_value()) return false;
    TESSERA_CHECK(*workspace <= cuda::ConvolutionPass::kWorkspaceBytesMax);
    char* const scratch = static_cast<char*>(scratch_.Of(WeightsBytes(map) + *workspace));
    if (scratch == nullptr) return true;  // The failure is scratch's.
    float* const turned = reinterpret_cast<float*>(scratch);
    pass.a = a;
    pass.b = to_weights ? b : turned;
    pass.c = to_weights ? turned : c;
    pass.beta = to_weights ? 0.0f : beta;
    const int64_t channels = map.from.channels, places = map.window.size();
    if (!to_weights) Turn<false>(map, channels, places, b, turned, &device_);
    if (!device_.Convolve(pass, scratch + WeightsBytes(map))) return false;
    ++shortcuts_.convolutions;
    if (!to_weights) return true;
    if (beta == 0) {
      Turn<false>(map, places, channels, turned, c, &device_);
    } else {
      Turn<true>(map, places, channels, turned, c, &device_);
    }
    return true;
  }
  return false;
}

template <typename T>
template <typename V, typename F>
void CudaConvolution<T>::ForParts(const ImagesShape& shape, const F& f) {
  TESSERA_CHECK(ItemsOf(shape.map) <= cuda::ImageWindows::kItemsMax);
  const Part part = PartOf<V>(shape);
  V* const patches = static_cast<V*>(scratch_.Of(part.bytes));
  if (patches == nullptr) return;
  for (int64_t first = 0; first < shape.rows; first += part.images) {
    f(first, std::min(part.images, shape.rows - first), patches);
  }
}

template <typename T>
template <typename F>
void CudaConvolution<T>::ForPatches(const ImagesShape& shape, const T* x, const F& f) {
  const ImageMap& map = shape.map;
  if (AreImagesPatches(map)) return f(0, shape.rows, x);
  ForParts<T>(shape, [&](int64_t first, int64_t images, T* patches) {
    const cuda::LayPatches<T> lay{{},
                                  WindowsOf(map),
                                  static_cast<uint32_t>(images * map.to.positions()),
                                  static_cast<uint32_t>(ColumnsOf(map)),
                                  x + first * map.from.size(),
                                  patches};
    device_.Launch(lay.blocks(), lay);
    f(first, images, patches);
  });
}

template <typename T>
void CudaConvolution<T>::Forward(const ImagesShape& shape, const T* x, const T* weight,
                                 const float* bias, float* y) {
  if (shape.rows == 0) return;
  const Image& to = shape.map.to;
  if (bias != nullptr) {
    cuda::BiasOp op;
    op.bias = bias;
    op.out = y;
    MapColumns({shape.rows * to.positions(), to.channels}, op, &device_);
  }
  const float beta = bias == nullptr ? 0.0f : 1.0f;
  if (Convolve(Kind::kForward, shape, x, weight, beta, y)) return;
  ForPatches(shape, x, [&](int64_t first, int64_t images, const T* patches) {
    device_.Multiply({factors_, images * to.positions(), to.channels, ColumnsOf(shape.map), patches,
                      false, weight, true, beta, y + first * to.size()});
  });
}

template <typename T>
void CudaConvolution<T>::WeightGradient(const ImagesShape& shape, const T* x, const T* dy,
                                        WriteMode mode, float* dweight) {
  const Image& to = shape.map.to;
  const int64_t columns = ColumnsOf(shape.map);
  const bool adds = mode == WriteMode::kAdd;
  if (shape.rows == 0) {
    if (adds) return;
    return device_.Zero(cuda::Stream::kCompute, dweight,
                        to.channels * columns * static_cast<int64_t>(sizeof(float)));
  }
  if (Convolve(Kind::kWeightGradient, shape, x, dy, adds ? 1.0f : 0.0f, dweight)) return;
  ForPatches(shape, x, [&](int64_t first, int64_t images, const T* patches) {
    device_.Multiply({factors_, to.channels, columns, images * to.positions(),
                      dy + first * to.size(), true, patches, false, adds || first > 0 ? 1.0f : 0.0f,
                      dweight});
  });
}

template <typename T>
void CudaConvolution<T>::InputGradient(const ImagesShape& shape, const T* dy, const T* weight,
                                       float* dx) {
  if (shape.rows == 0) return;
  const ImageMap& map = shape.map;
  const int64_t columns = ColumnsOf(map);
  const auto multiply = [&](int64_t first, int64_t images, float* dpatches) {
    device_.Multiply({factors_, images * map.to.positions(), columns, map.to.channels,
                      dy + first * map.to.size(), false, weight, false, 0.0f, dpatches});
  };
  if (AreImagesPatches(map)) return multiply(0, shape.rows, dx);
  if (Convolve(Kind::kInputGradient, shape, dy, weight, 0.0f, dx)) return;
  ForParts<float>(shape, [&](int64_t first, int64_t images, float* dpatches) {
    multiply(first, images, dpatches);
    const cuda::SumPatches sum{{},
                               WindowsOf(map),
                               static_cast<uint32_t>(images * map.from.size()),
                               static_cast<uint32_t>(columns),
                               dpatches,
                               dx + first * map.from.size()};
    device_.Launch(sum.blocks(), sum);
  });
}

template class CudaConvolution<float>;
template class CudaConvolution<Bf16>;

}  // namespace tessera
