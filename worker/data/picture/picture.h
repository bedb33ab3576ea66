// Pictures in memory, from the bytes of JPEG and PNG files.
//
// JPEG: baseline and progressive, grey or YCbCr or RGB, as libjpeg-turbo decodes them at its best quality. CMYK is
// refused. PNG: every kind. A palette becomes its colours, 16 bits per value are rounded to 8, and transparency is left
// out: what is under a transparent pixel shows, as Pillow's convert("RGB") has it. Gamma and colour profiles are not
// applied. A picture that EXIF says is to be turned or mirrored is, so that it stands upright.
#ifndef TESSERA_WORKER_DATA_PICTURE_PICTURE_H_
#define TESSERA_WORKER_DATA_PICTURE_PICTURE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/picture/pixels.h"
#include "worker/data/rectangle.h"

namespace tessera {

// A side and all pixels of a picture, at most. A message about a picture beyond them names them.
constexpr int64_t kPictureSideMax = 65535;
constexpr int64_t kPicturePixelsMax = int64_t{1} << 26;

// What a file's first bytes say. kInvalidArgument: it is no JPEG or PNG file, or one that is not read, or beyond the
// limits above; messages do not name the file, which the caller knows.
absl::StatusOr<PictureHeader> ReadPictureHeader(absl::Span<const uint8_t> file);

// The picture of a file with this header. With a `reduction` of 2, 4 or 8 a JPEG's height and width are divided by that
// and rounded up, which is much faster than to decode it whole; a PNG has none but 1. `out` keeps its capacity.
//   kInvalidArgument    the file is corrupt, or cut off
//   kResourceExhausted  no memory
// With a `part`, in pixels of the upright reduced picture, the pixels outside of it may be anything. Whether a file
// decodes does not depend on it.
absl::Status DecodePicture(absl::Span<const uint8_t> file, const PictureHeader& header,
                           int reduction, Picture* out);
absl::Status DecodePicture(absl::Span<const uint8_t> file, const PictureHeader& header,
                           int reduction, const Rectangle& part, Picture* out);

// A height or width of a picture that is decoded at a reduced size.
inline int64_t ReducedSide(int64_t side, int reduction) {
  return (side + reduction - 1) / reduction;
}

// The brightness of each pixel as ITU-R 601-2 has it, in Pillow's rounding: (19595 R + 38470 G + 7471 B + 2^15) / 2^16.
void GreyOf(const Picture& picture, std::vector<uint8_t>* out);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_PICTURE_PICTURE_H_
