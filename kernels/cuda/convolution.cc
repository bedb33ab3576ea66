#include "kernels/cuda/convolution.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/convolution_kernels.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/linear_kernels.h"

namespace tessera {
namespace {

// Of the weights, and of the patches.
int64_t ColumnsOf(const ImageMap& map) { return map.from.channels * map.window.size(); }

// The most that a launch numbers of an image.
int64_t ItemsOf(const ImageMap& map) {
  return std::max({map.from.size(), map.to.positions(), ColumnsOf(map)});
}

bool AreImagesPatches(const ImageMap& map) {
  return map.window == Window() && map.from.positions() == map.to.positions();
}

}  // namespace

template <typename T>
template <typename V>
typename CudaConvolution<T>::Part CudaConvolution<T>::PartOf(const ImagesShape& shape) const {
  const ImageMap& map = shape.map;
  const int64_t bytes = map.to.positions() * ColumnsOf(map) * static_cast<int64_t>(sizeof(V));
  const int64_t images =
      std::min(ImagesWithin(shape.rows, bytes, patch_bytes_),
               ImagesWithin(shape.rows, ItemsOf(map), cuda::ImageWindows::kItemsMax));
  return {images, images * bytes};
}

template <typename T>
int64_t CudaConvolution<T>::ScratchBytes(const ImagesShape& shape) const {
  if (AreImagesPatches(shape.map)) return 0;
  return std::max(PartOf<T>(shape).bytes, PartOf<float>(shape).bytes);
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
  ForPatches(shape, x, [&](int64_t first, int64_t images, const T* patches) {
    device_.Multiply({factors_, images * to.positions(), to.channels, ColumnsOf(shape.map), patches,
                      false, weight, true, bias == nullptr ? 0.0f : 1.0f, y + first * to.size()});
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
