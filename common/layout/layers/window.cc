#include "common/layout/layers/window.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kImageSizeMax = int64_t{1} << 24;

std::string Extent(int64_t height, int64_t width) { return absl::StrCat(height, " x ", width); }

// What a message adds of a window with gaps.
std::string Dilated(const Window& window) {
  if (window.dilation_y == 1 && window.dilation_x == 1) return "";
  return absl::StrCat(", ", Extent(window.span_y(), window.span_x()), " with its dilation");
}

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
      !InRange(window.padding_y, 0) || !InRange(window.padding_x, 0) ||
      !InRange(window.dilation_y, 1) || !InRange(window.dilation_x, 1) ||
      !InRange(layer.groups, 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("channels, kernel, stride, padding, dilation or groups is out of range, want "
                     "at most ",
                     kImageSizeMax));
  }
  if (from.channels % layer.groups != 0 || layer.channels % layer.groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups is ", layer.groups, " with ", from.channels, " channels in front and ",
                     layer.channels, " behind, want a divisor of both"));
  }
  const HeightAndWidth most = layer.padding_max;
  if (window.padding_y > most.height || window.padding_x > most.width) {
    return absl::InvalidArgumentError(
        absl::StrCat("padding is ", Extent(window.padding_y, window.padding_x), ", want at most ",
                     Extent(most.height, most.width), " with a kernel of ",
                     Extent(window.height, window.width), Dilated(window)));
  }
  const int64_t group_channels = from.channels / layer.groups;
  if (layer.sums_channels && group_channels > kImageSizeMax / window.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel is ", Extent(window.height, window.width), " on ", group_channels,
        " channels, want at most ", kImageSizeMax, " values that one output is computed from"));
  }
  const ImageMap map = MapOf(from, window, layer.channels, layer.groups);
  if (map.to.positions() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel is ", Extent(window.height, window.width), Dilated(window), ", want at most ",
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
