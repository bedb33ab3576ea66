#include "worker/data/picture/exif.h"

#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

// TIFF 6.0 and EXIF 2.3: a tag with one number of 16 bits, in an entry of 12 bytes.
constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShortType = 3;
constexpr size_t kEntryBytes = 12;

// Numbers of a TIFF block, in its byte order; 0 beyond its end.
class Tiff {
 public:
  Tiff(absl::Span<const uint8_t> bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

  uint32_t Number(size_t at, int count) const {
    // A file's offsets are not to be trusted, and 0 says nothing that would be taken.
    if (at > bytes_.size() || bytes_.size() - at < static_cast<size_t>(count)) return 0;
    uint32_t number = 0;
    for (int i = 0; i < count; ++i) {
      number = number << 8 | bytes_[at + (big_endian_ ? i : count - 1 - i)];
    }
    return number;
  }

 private:
  const absl::Span<const uint8_t> bytes_;
  const bool big_endian_;
};

}  // namespace

int ExifOrientation(absl::Span<const uint8_t> tiff) {
  // "II" is little-endian, "MM" big-endian.
  if (tiff.size() < 8 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M')) return 1;
  const Tiff numbers(tiff, tiff[0] == 'M');
  // TIFF's magic number.
  if (numbers.Number(2, 2) != 42) return 1;
  const size_t directory = numbers.Number(4, 4);
  const uint32_t entries = numbers.Number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > tiff.size()) return 1;
    if (numbers.Number(entry, 2) != kOrientationTag) continue;
    const uint32_t value = numbers.Number(entry + 8, 2);
    // A value that is wrong is taken as none.
    const bool is_one = numbers.Number(entry + 2, 2) == kShortType && value >= 1 && value <= 8;
    return is_one ? static_cast<int>(value) : 1;
  }
  return 1;
}

void SetUpright(int orientation, Picture* picture) {
  TESSERA_CHECK(orientation >= 1 && orientation <= 8);
  const int64_t h = picture->height, w = picture->width;
  const bool turns = TurnsSides(orientation);
  // The pixel (y, x) of the result is (from_y, from_x) of the picture: each counts x or y, from either end.
  const bool down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Picture upright;
  // Orientations from 5 on exchange rows and columns.
  upright.height = turns ? w : h;
  upright.width = turns ? h : w;
  upright.pixels.resize(picture->pixels.size());
  uint8_t* out = upright.pixels.data();
  for (int64_t y = 0; y < upright.height; ++y) {
    for (int64_t x = 0; x < upright.width; ++x, out += Picture::kChannels) {
      const int64_t row = turns ? x : y, column = turns ? y : x;
      const int64_t from = (down ? h - 1 - row : row) * w + (left ? w - 1 - column : column);
      std::memcpy(out, picture->pixels.data() + from * Picture::kChannels, Picture::kChannels);
    }
  }
  *picture = std::move(upright);
}

}  // namespace tessera
