// A picture in memory, and what is known of one before it is decoded.
#ifndef TESSERA_WORKER_DATA_PICTURE_PIXELS_H_
#define TESSERA_WORKER_DATA_PICTURE_PIXELS_H_

#include <cstdint>
#include <vector>

namespace tessera {

// Row-major. A pixel is red, green, blue, and a byte without meaning, so that it is a word.
struct Picture {
  static constexpr int kChannels = 4;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
};

struct PictureHeader {
  enum class Format { kJpeg, kPng };
  Format format = Format::kJpeg;
  // The extents of the upright picture.
  int64_t height = 0;
  int64_t width = 0;
  // EXIF's orientation, 1 to 8; 1: the rows lie as they are seen.
  int orientation = 1;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_PICTURE_PIXELS_H_
