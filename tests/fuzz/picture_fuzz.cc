// The doors of both decoders: pictures in JPEG and PNG, whole and reduced, with EXIF.
//
//   input = reduction(1) file
#include <algorithm>

#include "common/base/check.h"
#include "worker/data/picture/picture.h"

namespace tessera {
namespace {

// The limits of the product are for pictures that are worth their memory; an input's time is for its bytes.
constexpr int64_t kPixelsMax = int64_t{1} << 20;

// No value is undefined: each is read.
void CheckPicture(const Picture& picture) {
  TESSERA_CHECK(picture.height > 0 && picture.width > 0);
  TESSERA_CHECK(static_cast<int64_t>(picture.pixels.size()) ==
                picture.height * picture.width * Picture::kChannels);
  std::vector<uint8_t> grey;
  GreyOf(picture, &grey);
  uint64_t sum = 0;
  for (const uint8_t value : grey) sum += value;
  TESSERA_CHECK(sum <= 255 * grey.size());
}

void Decode(absl::Span<const uint8_t> file, int reduction) {
  const absl::StatusOr<PictureHeader> header = ReadPictureHeader(file);
  if (!header.ok()) {
    TESSERA_CHECK(!header.status().message().empty());
    return;
  }
  TESSERA_CHECK(header->height <= kPictureSideMax && header->width <= kPictureSideMax);
  TESSERA_CHECK(header->height * header->width <= kPicturePixelsMax);
  TESSERA_CHECK(header->orientation >= 1 && header->orientation <= 8);
  if (header->height * header->width > kPixelsMax) return;
  if (header->format == PictureHeader::Format::kPng) reduction = 1;
  Picture picture;
  const absl::Status status = DecodePicture(file, *header, reduction, &picture);
  if (!status.ok()) {
    TESSERA_CHECK(!status.message().empty());
    return;
  }
  TESSERA_CHECK(picture.height == (header->height + reduction - 1) / reduction);
  TESSERA_CHECK(picture.width == (header->width + reduction - 1) / reduction);
  CheckPicture(picture);
  // A part of it has the same pixels.
  const Rectangle part = {picture.height / 3, picture.width / 4, (picture.height + 2) / 3,
                          (picture.width + 1) / 2};
  Picture cut;
  TESSERA_CHECK(DecodePicture(file, *header, reduction, part, &cut).ok());
  for (int64_t y = part.top; y < part.top + part.height; ++y) {
    const int64_t at = (y * picture.width + part.left) * Picture::kChannels;
    TESSERA_CHECK(std::equal(cut.pixels.begin() + at,
                             cut.pixels.begin() + at + part.width * Picture::kChannels,
                             picture.pixels.begin() + at));
  }
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  tessera::Decode(absl::MakeConstSpan(data + 1, size - 1), 1 << (data[0] % 4));
  return 0;
}
