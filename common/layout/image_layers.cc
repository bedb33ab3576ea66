#include "common/layout/image_layers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/repeated_field.h"

namespace tessera {
namespace {

constexpr int64_t kImageSizeMax = int64_t{1} << 24;

using Extents = google::protobuf::RepeatedField<int64_t>;

struct Pair {
  int64_t y;
  int64_t x;
};

// One number is for both.
Pair PairOf(const Extents& values, Pair absent) {
  if (values.empty()) return absent;
  return {values.Get(0), values.Get(values.size() - 1)};
}

Window WindowOf(Pair kernel, Pair stride, Pair padding) {
  return {kernel.y, kernel.x, stride.y, stride.x, padding.y, padding.x};
}

Window PoolWindow(const v1::Pool& pool, const Image& from) {
  const Pair kernel = PairOf(pool.kernel(), {from.height, from.width});
  return WindowOf(kernel, PairOf(pool.stride(), kernel), PairOf(pool.padding(), {0, 0}));
}

std::string Extent(int64_t height, int64_t width) { return absl::StrCat(height, " x ", width); }

}  // namespace

bool ReadsImages(const v1::Layer& layer) {
  return layer.has_conv2d() || layer.has_max_pool() || layer.has_avg_pool();
}

bool ReadsImages(const v1::Model& model) {
  for (const v1::Layer& layer : model.layers()) {
    if (layer.has_linear()) return false;
    if (ReadsImages(layer)) return true;
  }
  return false;
}

absl::StatusOr<ImageMap> MapOf(const v1::Layer& layer, const Image& from) {
  Window window;
  int64_t channels = from.channels;
  if (layer.has_conv2d()) {
    const v1::Conv2d& conv = layer.conv2d();
    window = WindowOf(PairOf(conv.kernel(), {1, 1}), PairOf(conv.stride(), {1, 1}),
                      PairOf(conv.padding(), {0, 0}));
    channels = conv.channels();
  } else if (layer.has_max_pool()) {
    window = PoolWindow(layer.max_pool(), from);
  } else {
    window = PoolWindow(layer.avg_pool(), from);
  }
  const auto in_range = [](int64_t extent, int64_t least) {
    return extent >= least && extent <= kImageSizeMax;
  };
  if (!in_range(channels, 1) || !in_range(window.height, 1) || !in_range(window.width, 1) ||
      !in_range(window.stride_y, 1) || !in_range(window.stride_x, 1) ||
      !in_range(window.padding_y, 0) || !in_range(window.padding_x, 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "channels, kernel, stride or padding is out of range, want at most ", kImageSizeMax));
  }
  // Padding that fills a window gives nothing to look at.
  const bool pools = !layer.has_conv2d();
  const int64_t most_y = pools ? window.height / 2 : window.height - 1;
  const int64_t most_x = pools ? window.width / 2 : window.width - 1;
  if (window.padding_y > most_y || window.padding_x > most_x) {
    return absl::InvalidArgumentError(absl::StrCat(
        "padding is ", Extent(window.padding_y, window.padding_x), ", want at most ",
        Extent(most_y, most_x), " with a kernel of ", Extent(window.height, window.width)));
  }
  if (layer.has_conv2d() && from.channels > kImageSizeMax / window.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel is ", Extent(window.height, window.width), " on ", from.channels,
        " channels, want at most ", kImageSizeMax, " values that one output is computed from"));
  }
  const ImageMap map = MapOf(from, window, channels);
  if (map.to.positions() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel is ", Extent(window.height, window.width), ", want at most ",
                     Extent(from.height + 2 * window.padding_y, from.width + 2 * window.padding_x),
                     ", which is the image before it with its padding"));
  }
  if (map.to.channels > kImageSizeMax / map.to.positions()) {
    return absl::InvalidArgumentError(absl::StrCat(map.to.channels, " channels of ",
                                                   Extent(map.to.height, map.to.width),
                                                   ", want at most ", kImageSizeMax, " values"));
  }
  return map;
}

}  // namespace tessera
