// How EXIF says that a picture is to be turned.
#ifndef TESSERA_WORKER_DATA_PICTURE_EXIF_H_
#define TESSERA_WORKER_DATA_PICTURE_EXIF_H_

#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/picture/pixels.h"

namespace tessera {

// The orientation that a TIFF header with its first directory says, 1 to 8. 1 where it says none, or is malformed: such
// a block says nothing of the pixels, and many programs write one.
int ExifOrientation(absl::Span<const uint8_t> tiff);

// Whether height and width change places.
inline bool TurnsSides(int orientation) { return orientation >= 5; }

// Turns and mirrors a picture of this orientation, so that it stands upright.
void SetUpright(int orientation, Picture* picture);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_PICTURE_EXIF_H_
