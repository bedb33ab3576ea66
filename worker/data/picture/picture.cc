#include "worker/data/picture/picture.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/vector_clones.h"
#include "worker/data/file_kind.h"
#include "worker/data/picture/exif.h"
#include "worker/data/picture/jpeg.h"
#include "worker/data/picture/png.h"

namespace tessera {
namespace {

struct OtherKind {
  size_t at;
  absl::string_view bytes;
  absl::string_view name;
};

// Pictures in formats that are not read.
constexpr OtherKind kOtherKinds[] = {
    {0, "GIF8", "a GIF picture"},
    {8, "WEBP", "a WebP picture"},
    {0, "BM", "a BMP picture"},
    {0, absl::string_view("II*\0", 4), "a TIFF picture"},
    {0, absl::string_view("MM\0*", 4), "a TIFF picture"},
    {4, "ftypavif", "an AVIF picture"},
    {4, "ftyphei", "a HEIF picture"},
    {4, "ftypmif1", "a HEIF picture"},
};

absl::Status NoPicture(absl::string_view file) {
  if (file.empty()) return absl::InvalidArgumentError("is empty, want a JPEG or PNG picture");
  for (const OtherKind& kind : kOtherKinds) {
    if (file.substr(std::min(kind.at, file.size())).substr(0, kind.bytes.size()) != kind.bytes) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("is ", kind.name, ", want JPEG or PNG; convert it"));
  }
  const FileKind* const kind = FileKindOf(file.substr(0, kFileHeadBytes));
  return absl::InvalidArgumentError(
      kind == nullptr ? "is no picture, want JPEG or PNG"
                      : absl::StrCat("content is ", kind->name, ", want JPEG or PNG"));
}

absl::Status CheckSize(int64_t height, int64_t width) {
  // Each side first: their product might not fit.
  if (height <= kPictureSideMax && width <= kPictureSideMax &&
      height * width <= kPicturePixelsMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("is ", width, " x ", height,
                                                 " pixels, want sides of at most ", kPictureSideMax,
                                                 " and at most ", kPicturePixelsMax, " pixels"));
}

TESSERA_VECTOR_CLONES
void Grey(const uint8_t* __restrict pixels, int64_t count, uint8_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* const x = pixels + 4 * i;
    // The weights 0.299, 0.587 and 0.114 of ITU-R BT.601, times 2^16, as Pillow and torchvision have them.
    out[i] = static_cast<uint8_t>((19595u * x[0] + 38470u * x[1] + 7471u * x[2] + 0x8000u) >> 16);
  }
}

}  // namespace

absl::StatusOr<PictureHeader> ReadPictureHeader(absl::Span<const uint8_t> file) {
  const absl::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  PictureHeader header;
  if (IsJpeg(file)) {
    TESSERA_ASSIGN_OR_RETURN(header, ReadJpegHeader(file));
  } else if (IsPng(file)) {
    TESSERA_ASSIGN_OR_RETURN(header, ReadPngHeader(file));
  } else {
    return NoPicture(text);
  }
  TESSERA_RETURN_IF_ERROR(CheckSize(header.height, header.width));
  // Sizes are those of the picture as it is seen.
  if (TurnsSides(header.orientation)) std::swap(header.height, header.width);
  return header;
}

absl::Status DecodePicture(absl::Span<const uint8_t> file, const PictureHeader& header,
                           int reduction, Picture* out) {
  const Rectangle whole = {0, 0, ReducedSide(header.height, reduction),
                           ReducedSide(header.width, reduction)};
  return DecodePicture(file, header, reduction, whole, out);
}

absl::Status DecodePicture(absl::Span<const uint8_t> file, const PictureHeader& header,
                           int reduction, const Rectangle& part, Picture* out) try {
  if (header.format == PictureHeader::Format::kJpeg) {
    // A picture that is turned is decoded whole.
    Rectangle lying = part;
    if (header.orientation != 1) {
      lying = {0, 0, ReducedSide(header.height, reduction), ReducedSide(header.width, reduction)};
      if (TurnsSides(header.orientation)) std::swap(lying.height, lying.width);
    }
    TESSERA_RETURN_IF_ERROR(DecodeJpeg(file, reduction, lying, out));
  } else {
    // PNG has no reduced decoding.
    TESSERA_CHECK(reduction == 1);
    TESSERA_RETURN_IF_ERROR(DecodePng(file, out));
  }
  if (header.orientation != 1) SetUpright(header.orientation, out);
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a picture of ", header.width, " x ", header.height, " pixels"));
}

void GreyOf(const Picture& picture, std::vector<uint8_t>* out) {
  const int64_t count = picture.height * picture.width;
  if (out->size() < static_cast<size_t>(count)) out->resize(count);
  Grey(picture.pixels.data(), count, out->data());
}

}  // namespace tessera
