// Parts of JPEG pictures against the same places of the whole, for every way in which colours may lie in the file.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
// The library's headers want <cstdio> before them.
#include <jpeglib.h>

#include <string>
#include <vector>

#include "worker/data/picture/picture.h"

namespace tessera {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kHeight = 75, kWidth = 101;

struct Kind {
  const char* name;
  int across, down;  // how many pixels share one colour
  bool grey, progressive, scans;
  int restart_rows;
};
constexpr Kind kKinds[] = {
    {"each pixel its colour", 1, 1, false, false, false, 0},
    {"4:2:2", 2, 1, false, false, false, 0},
    {"4:4:0", 1, 2, false, false, false, 0},
    {"4:2:0", 2, 2, false, false, false, 0},
    {"4:1:1", 4, 1, false, false, false, 0},
    {"4:2:0, restarts", 2, 2, false, false, false, 1},
    {"4:2:0, progressive", 2, 2, false, true, false, 0},
    {"4:2:0, a scan for each colour", 2, 2, false, false, true, 0},
    {"4:2:0, progressive, with the means of blocks alone", 2, 2, false, true, true, 0},
    {"grey", 1, 1, true, false, false, 0},
};

// Shapes and noise, so that each place differs from those around it.
Bytes Encode(const Kind& kind) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* file = nullptr;
  unsigned long bytes = 0;  // NOLINT: the library's type
  jpeg_mem_dest(&jpeg, &file, &bytes);
  jpeg.image_height = kHeight;
  jpeg.image_width = kWidth;
  jpeg.input_components = kind.grey ? 1 : 3;
  jpeg.in_color_space = kind.grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 90, TRUE);
  jpeg.comp_info[0].h_samp_factor = kind.across;
  jpeg.comp_info[0].v_samp_factor = kind.down;
  jpeg.restart_in_rows = kind.restart_rows;
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg_scan_info scans[3] = {};
  if (kind.scans) {
    for (int i = 0; i < 3; ++i) {
      scans[i].comps_in_scan = 1;
      scans[i].component_index[0] = i;
      scans[i].Se = kind.progressive ? 0 : 63;
    }
    jpeg.scan_info = scans;
    jpeg.num_scans = 3;
  }
  jpeg_start_compress(&jpeg, TRUE);
  uint32_t noise = 1;
  for (int y = 0; y < kHeight; ++y) {
    Bytes row;
    for (int i = 0; i < kWidth * jpeg.input_components; ++i) {
      noise = noise * 1664525 + 1013904223;
      row.push_back(static_cast<uint8_t>(i * (y + 3) / 9 + (noise >> 27)));
    }
    JSAMPROW at = row.data();
    jpeg_write_scanlines(&jpeg, &at, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  const Bytes out(file, file + bytes);
  std::free(file);
  return out;
}

// Red, green and blue of the pixels of a part.
Bytes ColoursOf(const Picture& picture, const Rectangle& part) {
  Bytes out;
  for (int64_t y = part.top; y < part.top + part.height; ++y) {
    for (int64_t x = part.left; x < part.left + part.width; ++x) {
      const uint8_t* const pixel =
          picture.pixels.data() + (y * picture.width + x) * Picture::kChannels;
      out.insert(out.end(), pixel, pixel + 3);
    }
  }
  return out;
}

TEST_CASE("a part of a picture has the bits that it has in the whole", "[picture]") {
  for (const Kind& kind : kKinds) {
    const Bytes file = Encode(kind);
    const absl::StatusOr<PictureHeader> header = ReadPictureHeader(file);
    REQUIRE(header.ok());
    for (const int reduction : {1, 2, 4, 8}) {
      Picture whole, picture;
      REQUIRE(DecodePicture(file, *header, reduction, &whole).ok());
      REQUIRE(whole.height == ReducedSide(kHeight, reduction));
      uint32_t random = 7;
      const auto below = [&](int64_t end) {
        random = random * 1664525 + 1013904223;
        return static_cast<int64_t>((random >> 8) % end);
      };
      for (int i = 0; i < 60; ++i) {
        Rectangle part;
        part.top = i % 5 == 0 ? 0 : below(whole.height);
        part.left = i % 7 == 0 ? 0 : below(whole.width);
        part.height = i % 3 == 0 ? whole.height - part.top : 1 + below(whole.height - part.top);
        part.width = i % 4 == 0 ? whole.width - part.left : 1 + below(whole.width - part.left);
        // What was there before must not shine through.
        std::memset(picture.pixels.data(), i, picture.pixels.size());
        REQUIRE(DecodePicture(file, *header, reduction, part, &picture).ok());
        if (ColoursOf(picture, part) == ColoursOf(whole, part)) continue;
        FAIL(kind.name << " at 1/" << reduction << " from row " << part.top << ", column "
                       << part.left << ": " << part.height << " x " << part.width);
      }
    }
  }
}

TEST_CASE("whether a file decodes does not depend on the part that is wanted", "[picture]") {
  for (const Kind& kind : {kKinds[3], kKinds[5], kKinds[6]}) {
    CAPTURE(kind.name);
    Bytes file = Encode(kind);
    const Bytes right = file;
    int refused = 0;
    const auto compare = [&] {
      const absl::StatusOr<PictureHeader> header = ReadPictureHeader(file);
      if (!header.ok() || header->height != kHeight || header->width != kWidth) return;
      Picture picture;
      const absl::Status whole = DecodePicture(file, *header, 1, &picture);
      for (const Rectangle& part : {Rectangle{0, 0, 1, 1}, Rectangle{30, 40, 9, 8},
                                    Rectangle{kHeight - 1, kWidth - 1, 1, 1}}) {
        const absl::Status status = DecodePicture(file, *header, 1, part, &picture);
        CHECK(status.ToString() == whole.ToString());
      }
      if (!whole.ok()) ++refused;
    };
    for (size_t i = 0; i < right.size(); i += 11) {
      CAPTURE(i);
      file[i] ^= 0xff;
      compare();
      file = right;
      file.resize(i);
      compare();
      file = right;
    }
    CHECK(refused > 10);
  }
}

TEST_CASE("a part of a picture that is turned is where the upright picture has it", "[picture]") {
  Bytes file = Encode(kKinds[3]);
  // An EXIF block behind the first marker says that it lies on its side.
  const Bytes exif = {0xff, 0xe1, 0,    34, 'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0,
                      1,    0,    0x12, 1,  3,   0,   1,   0,   0, 0, 6,   0,   0,  0, 0, 0, 0, 0};
  file.insert(file.begin() + 2, exif.begin(), exif.end());
  const absl::StatusOr<PictureHeader> header = ReadPictureHeader(file);
  REQUIRE(header.ok());
  REQUIRE(header->orientation == 6);
  for (const int reduction : {1, 2}) {
    Picture whole, picture;
    REQUIRE(DecodePicture(file, *header, reduction, &whole).ok());
    const Rectangle part = {20, 7, 25, 11};
    REQUIRE(DecodePicture(file, *header, reduction, part, &picture).ok());
    CHECK(ColoursOf(picture, part) == ColoursOf(whole, part));
  }
}

}  // namespace
}  // namespace tessera
