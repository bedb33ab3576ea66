#include "kernels/cuda/pooling.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/pooling_kernels.h"

namespace tessera {
namespace {

bool HasPlacesInTwoWindows(const ImageMap& map) {
  const Window& w = map.window;
  return (map.to.height > 1 && w.stride_y < w.height) || (map.to.width > 1 && w.stride_x < w.width);
}

}  // namespace

template <template <bool> class Kernel>
void CudaPooling::Launch(const ImagesShape& shape, const Image& cut, const Image& made,
                         const float* x, const float* dy, float* out) {
  const Image &from = shape.map.from, &to = shape.map.to;
  TESSERA_CHECK(to.channels == from.channels && cut.size() <= cuda::ImageWindows::kItemsMax);
  // Four channels at a time, where all arrays hold fours.
  const bool wide = from.channels % 4 == 0 && cuda::HoldsFours(x) && cuda::HoldsFours(dy) &&
                    cuda::HoldsFours(out);
  const int64_t part = ImagesWithin(shape.rows, cut.size(), cuda::ImageWindows::kItemsMax);
  for (int64_t first = 0; first < shape.rows; first += part) {
    const int64_t images = std::min(part, shape.rows - first);
    const auto launch = [&](auto kernel) {
      kernel.windows = WindowsOf(shape.map);
      kernel.items = static_cast<uint32_t>(images * cut.size() / kernel.kChannels);
      kernel.share = 1.0f / static_cast<float>(shape.map.window.size());
      kernel.x = x == nullptr ? nullptr : x + first * from.size();
      kernel.dy = dy == nullptr ? nullptr : dy + first * to.size();
      kernel.out = out + first * made.size();
      device_.Launch(kernel.blocks(), kernel);
    };
    if (wide) {
      launch(Kernel<true>());
    } else {
      launch(Kernel<false>());
    }
  }
}

void CudaPooling::Max(const ImagesShape& shape, const float* x, float* y) {
  Launch<cuda::MaxPool>(shape, shape.map.to, shape.map.to, x, nullptr, y);
}

void CudaPooling::MaxBackward(const ImagesShape& shape, const float* x, const float* dy,
                              float* dx) {
  const Image &from = shape.map.from, &to = shape.map.to;
  // Where windows overlap a place gathers from all its windows; scattering would add in an order that varies.
  if (HasPlacesInTwoWindows(shape.map)) {
    return Launch<cuda::MaxPoolBackward>(shape, from, from, x, dy, dx);
  }
  // Places that are no window's largest have no gradient.
  device_.Zero(cuda::Stream::kCompute, dx,
               shape.rows * from.size() * static_cast<int64_t>(sizeof(float)));
  Launch<cuda::MaxPoolScatter>(shape, to, from, x, dy, dx);
}

void CudaPooling::Average(const ImagesShape& shape, const float* x, float* y) {
  Launch<cuda::AveragePool>(shape, shape.map.to, shape.map.to, x, nullptr, y);
}

void CudaPooling::AverageBackward(const ImagesShape& shape, const float* dy, float* dx) {
  Launch<cuda::AveragePoolBackward>(shape, shape.map.from, shape.map.from, nullptr, dy, dx);
}

}  // namespace tessera
