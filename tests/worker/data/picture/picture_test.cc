// Pictures of every kind against what Pillow makes of them: testdata/, which make_testdata.py has written.
#include "worker/data/picture/picture.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "worker/data/picture/exif.h"

namespace tessera {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes ReadBytes(const std::string& name) {
  std::ifstream file("tests/worker/data/picture/testdata/" + name, std::ios::binary);
  INFO(name);
  REQUIRE(file.good());
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

// Red, green and blue of each pixel.
Bytes ColoursOf(const Picture& picture) {
  Bytes out;
  for (size_t i = 0; i < picture.pixels.size(); ++i) {
    if (i % Picture::kChannels < 3) out.push_back(picture.pixels[i]);
  }
  return out;
}

absl::StatusOr<Picture> Decode(const Bytes& file, int reduction = 1) {
  const absl::StatusOr<PictureHeader> header = ReadPictureHeader(file);
  if (!header.ok()) return header.status();
  Picture picture;
  const absl::Status status = DecodePicture(file, *header, reduction, &picture);
  if (!status.ok()) return status;
  return picture;
}

std::string Refusal(const Bytes& file) { return std::string(Decode(file).status().message()); }

TEST_CASE("a picture of every kind has the pixels that Pillow gives it", "[picture]") {
  for (const std::string name :
       {"colour.jpg", "progressive.jpg", "grey.jpg", "colour.png", "grey.png", "two_colours.png",
        "palette.png", "alpha.png", "grey_alpha.png", "interlaced.png", "colour_16.png",
        "grey_16.png"}) {
    INFO(name);
    const absl::StatusOr<Picture> picture = Decode(ReadBytes(name));
    INFO(picture.status().ToString());
    REQUIRE(picture.ok());
    CHECK(picture->height == 10);
    CHECK(picture->width == 14);
    CHECK(ColoursOf(*picture) == ReadBytes(name + ".rgb"));
  }
}

TEST_CASE("a picture is turned and mirrored as EXIF says", "[picture]") {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string name = "turned_" + std::to_string(orientation) + ".jpg";
    INFO(name);
    const Bytes file = ReadBytes(name);
    const absl::StatusOr<PictureHeader> header = ReadPictureHeader(file);
    REQUIRE(header.ok());
    CHECK(header->orientation == orientation);
    CHECK(header->height == (orientation < 5 ? 10 : 14));
    const absl::StatusOr<Picture> picture = Decode(file);
    REQUIRE(picture.ok());
    CHECK(picture->height == header->height);
    CHECK(picture->width == header->width);
    CHECK(ColoursOf(*picture) == ReadBytes(name + ".rgb"));
  }
  const absl::StatusOr<Picture> png = Decode(ReadBytes("turned_6.png"));
  REQUIRE(png.ok());
  CHECK(ColoursOf(*png) == ReadBytes("turned_6.png.rgb"));
}

TEST_CASE("an EXIF block that is malformed turns nothing", "[picture]") {
  const Bytes good = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0};
  CHECK(ExifOrientation(good) == 6);
  for (size_t size = 0; size < good.size(); ++size) {
    CHECK(ExifOrientation(absl::MakeConstSpan(good).subspan(0, size)) == 1);
  }
  for (const size_t at : {0, 1, 2, 4, 5, 10, 12, 18}) {
    Bytes wrong = good;
    wrong[at] ^= 0x60;
    CHECK(ExifOrientation(wrong) == 1);
  }
}

TEST_CASE("a JPEG at half its size is the library's, and at less it is smaller", "[picture]") {
  const Bytes file = ReadBytes("large.jpg");
  const absl::StatusOr<Picture> half = Decode(file, 2);
  REQUIRE(half.ok());
  CHECK(half->height == 60);
  CHECK(half->width == 100);
  CHECK(ColoursOf(*half) == ReadBytes("large.jpg.rgb"));
  CHECK(Decode(file, 8)->height == 15);
  CHECK(Decode(file, 8)->width == 25);
  CHECK(Decode(file)->height == 120);
}

TEST_CASE("grey is ITU-R 601 in Pillow's rounding", "[picture]") {
  Picture picture;
  picture.height = 1;
  picture.width = 4;
  picture.pixels = {255, 0, 0, 9, 0, 255, 0, 9, 0, 0, 255, 9, 123, 45, 67, 9};
  Bytes grey;
  GreyOf(picture, &grey);
  CHECK(grey == Bytes{76, 150, 29, 71});
}

TEST_CASE("what is no picture that can be read is refused by name", "[picture]") {
  const struct {
    const char* name;
    const char* refusal;
  } cases[] = {
      {"cmyk.jpg", "is a JPEG picture in CMYK, want grey or RGB"},
      {"picture.gif", "is a GIF picture, want JPEG or PNG; convert it"},
      {"picture.bmp", "is a BMP picture, want JPEG or PNG; convert it"},
      {"gigantic.png", "is 60000 x 60000 pixels, want sides of at most 65535"},
      {"gigantic.jpg", "is 60000 x 60000 pixels, want sides of at most 65535"},
      {"colour.jpg.rgb", "is no picture, want JPEG or PNG"},
  };
  for (const auto& c : cases) {
    INFO(c.name);
    CHECK(Refusal(ReadBytes(c.name)).find(c.refusal) == 0);
  }
  CHECK(Refusal({}) == "is empty, want a JPEG or PNG picture");
  const std::string page = "<!DOCTYPE html><html>";
  CHECK(Refusal(Bytes(page.begin(), page.end())).find("want JPEG or PNG") != std::string::npos);
}

TEST_CASE("a picture that was cut off anywhere is refused, not half read", "[picture]") {
  for (const std::string name : {"colour.jpg", "progressive.jpg", "grey.jpg", "colour.png",
                                 "palette.png", "interlaced.png"}) {
    const Bytes file = ReadBytes(name);
    // The last two bytes of a JPEG only say that it ends.
    const size_t end = name.find(".jpg") != std::string::npos ? file.size() - 2 : file.size();
    for (size_t size = 0; size < end; ++size) {
      INFO(name << " of " << size << " bytes");
      CHECK_FALSE(Decode(Bytes(file.begin(), file.begin() + size)).ok());
    }
  }
}

TEST_CASE("a picture with any byte changed decodes or is refused", "[picture]") {
  for (const std::string name : {"colour.jpg", "progressive.jpg", "palette.png", "turned_6.jpg"}) {
    Bytes file = ReadBytes(name);
    int refused = 0;
    for (uint8_t& byte : file) {
      byte ^= 0xff;
      const absl::StatusOr<Picture> picture = Decode(file);
      if (!picture.ok()) ++refused;
      byte ^= 0xff;
    }
    CHECK(refused > 0);
    CHECK(Decode(file).ok());
  }
}

}  // namespace
}  // namespace tessera
