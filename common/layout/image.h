// Images between layers, and windows that move over them.
#ifndef TESSERA_COMMON_LAYOUT_IMAGE_H_
#define TESSERA_COMMON_LAYOUT_IMAGE_H_

#include <cstdint>

namespace tessera {

// The extents of one example's activations. Those that are no image have a channel for each neuron and one position. A
// sequence of tokens has its places as rows of one column; it lies [places, channels] on the host and on devices, and
// layers of features act on each place by itself.
struct Image {
  int64_t channels = 1;
  int64_t height = 1;
  int64_t width = 1;
  bool is_sequence = false;

  int64_t positions() const { return height * width; }
  int64_t size() const { return channels * positions(); }
  // The rows of features that layers of features act on.
  int64_t places() const { return is_sequence ? height : 1; }

  friend bool operator==(const Image& a, const Image& b) {
    return a.channels == b.channels && a.height == b.height && a.width == b.width &&
           a.is_sequence == b.is_sequence;
  }
};

// What a convolution or pooling moves over an image. Output (y, x) looks at `height` rows from y stride_y - padding_y
// on, each dilation_y behind the one before, and at columns likewise; what lies outside of the image is padding.
struct Window {
  int64_t height = 1;
  int64_t width = 1;
  int64_t stride_y = 1;
  int64_t stride_x = 1;
  int64_t padding_y = 0;
  int64_t padding_x = 0;
  int64_t dilation_y = 1;
  int64_t dilation_x = 1;

  int64_t size() const { return height * width; }
  // The rows and the columns from the first to the last that it looks at.
  int64_t span_y() const { return (height - 1) * dilation_y + 1; }
  int64_t span_x() const { return (width - 1) * dilation_x + 1; }

  friend bool operator==(const Window& a, const Window& b) {
    return a.height == b.height && a.width == b.width && a.stride_y == b.stride_y &&
           a.stride_x == b.stride_x && a.padding_y == b.padding_y && a.padding_x == b.padding_x &&
           a.dilation_y == b.dilation_y && a.dilation_x == b.dilation_x;
  }
};

// How many places a window of such a span has along one extent; 0 where it does not fit.
inline int64_t WindowPlaces(int64_t extent, int64_t span, int64_t stride, int64_t padding) {
  const int64_t room = extent + 2 * padding - span;
  return room < 0 ? 0 : room / stride + 1;
}

// One image made into another: `to` has as many places as the window.
struct ImageMap {
  Image from;
  Image to;
  Window window;
  // A convolution's channels are in so many groups, as many channels in each, before and behind it. Each group behind
  // is computed from its own in front.
  int64_t groups = 1;

  // Channels that one output is computed from.
  int64_t group_channels() const { return from.channels / groups; }
  // A convolution's weight: values that one output is computed from, and all.
  int64_t weight_columns() const { return group_channels() * window.size(); }
  int64_t weight_size() const { return to.channels * weight_columns(); }
};

// With so many channels behind it.
inline ImageMap MapOf(const Image& from, const Window& window, int64_t channels,
                      int64_t groups = 1) {
  const Image to{channels,
                 WindowPlaces(from.height, window.span_y(), window.stride_y, window.padding_y),
                 WindowPlaces(from.width, window.span_x(), window.stride_x, window.padding_x)};
  return {from, to, window, groups};
}

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_IMAGE_H_
