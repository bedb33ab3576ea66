#include "common/layout/layers/window.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kImageSizeMax = int64_t{1} << 24;

std::string Extent(int64_t height, int64_t width) { return absl::StrCat(height, " x ", width); }

bool InRange(int64_t extent, int64_t least) { return extent >= least && extent <= kImageSizeMax; }

}  // namespace

HeightAndWidth PairOf(const Extents& values, HeightAndWidth absent) {
  if (values.empty()) return absent;
  return {values.Get(0), values.Get(values.size() - 1)};
}

Window WindowOf(HeightAndWidth kernel, HeightAndWidth stride, HeightAndWidth padding) {
  return {kernel.height, kernel.width, stride.height, stride.width, padding.height, padding.width};
}

absl::StatusOr<ImageMap> CheckedMap(const Image& from, const WindowedLayer& layer) {
  const Window& window = layer.window;
  if (!InRange(layer.channels, 1) || !InRange(window.height, 1) || !InRange(window.width, 1) ||
      !InRange(window.stride_y, 1) || !InRange(window.stride_x, 1) ||
      !InRange(window.padding_y, 0) || !InRange(window.padding_x, 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "channels, kernel, stride or padding is out of range, want at most ", kImageSizeMax));
  }
  const HeightAndWidth most = layer.padding_max;
  if (window.padding_y > most.height || window.padding_x > most.width) {
    return absl::InvalidArgumentError(
        absl::StrCat("padding is ", Extent(window.padding_y, window.padding_x), ", want at most ",
                     Extent(most.height, most.width), " with a kernel of ",
                     Extent(window.height, window.width)));
  }
  if (layer.sums_channels && from.channels > kImageSizeMax / window.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel is ", Extent(window.height, window.width), " on ", from.channels,
        " channels, want at most ", kImageSizeMax, " values that one output is computed from"));
  }
  const ImageMap map = MapOf(from, window, layer.channels);
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
