// JPEG by libjpeg-turbo: picture.h says what is read. Only jpeg.cc sees the library.
#ifndef TESSERA_WORKER_DATA_PICTURE_JPEG_H_
#define TESSERA_WORKER_DATA_PICTURE_JPEG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/picture/pixels.h"
#include "worker/data/rectangle.h"

namespace tessera {

bool IsJpeg(absl::Span<const uint8_t> file);
// Height and width as they lie in the file.
absl::StatusOr<PictureHeader> ReadJpegHeader(absl::Span<const uint8_t> file);
// Rows as they lie in the file. Pixels outside of `part`, which is of the reduced picture, may be anything. All of the
// file is read whatever is wanted, so that what is corrupt does not depend on it. Throws std::bad_alloc.
absl::Status DecodeJpeg(absl::Span<const uint8_t> file, int reduction, const Rectangle& part,
                        Picture* out);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_PICTURE_JPEG_H_
