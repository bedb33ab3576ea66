// PNG by libpng: picture.h says what is read. Only png.cc sees the library.
#ifndef TESSERA_WORKER_DATA_PICTURE_PNG_H_
#define TESSERA_WORKER_DATA_PICTURE_PNG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/picture/pixels.h"

namespace tessera {

bool IsPng(absl::Span<const uint8_t> file);
// Height and width as they lie in the file.
absl::StatusOr<PictureHeader> ReadPngHeader(absl::Span<const uint8_t> file);
// Rows as they lie in the file. Throws std::bad_alloc.
absl::Status DecodePng(absl::Span<const uint8_t> file, Picture* out);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_PICTURE_PNG_H_
