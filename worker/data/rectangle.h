// A part of a picture.
#ifndef TESSERA_WORKER_DATA_RECTANGLE_H_
#define TESSERA_WORKER_DATA_RECTANGLE_H_

#include <cstdint>

namespace tessera {

// A part of a picture, in pixels.
struct Rectangle {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

inline bool operator==(const Rectangle& a, const Rectangle& b) {
  return a.top == b.top && a.left == b.left && a.height == b.height && a.width == b.width;
}

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_RECTANGLE_H_
