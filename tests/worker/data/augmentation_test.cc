#include "worker/data/augmentation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "common/base/philox.h"
#include "google/protobuf/text_format.h"
#include "tests/worker/data/resample_values.h"
#include "worker/data/resample.h"

namespace tessera {
namespace {

using Bytes = std::vector<uint8_t>;

Augmentation Of(const std::string& text, const std::vector<int64_t>& input, uint64_t seed = 7) {
  v1::Augment augment;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &augment));
  return Augmentation(augment, seed, input);
}

Bytes Applied(const Augmentation& augmentation, const Bytes& x, uint64_t epoch, uint32_t row) {
  Bytes out(x.size(), 99);
  Resampler resampler;
  augmentation.Apply(x.data(), epoch, row, &resampler, out.data());
  return out;
}

TEST_CASE("bytes are scaled as Pillow scales them, one value or four at once", "[resample]") {
  Resampler resampler;
  for (const ResampleCase& c : kResampleCases) {
    CAPTURE(c.from.top, c.from.left, c.height, c.width);
    const Rectangle all{0, 0, c.height, c.width};
    Bytes out(c.values.size());
    resampler.Resize(kResampled.data(), 9, 1, c.from, c.height, c.width, all, out.data());
    CHECK(out == c.values);
    Bytes four, of_four(4 * c.values.size());
    for (const uint8_t value : kResampled) {
      four.insert(four.end(), {value, static_cast<uint8_t>(255 - value), value, 0});
    }
    resampler.Resize(four.data(), 9, 4, c.from, c.height, c.width, all, of_four.data());
    for (size_t i = 0; i < c.values.size(); ++i) {
      CHECK(of_four[4 * i] == c.values[i]);
      CHECK(of_four[4 * i + 2] == c.values[i]);
      CHECK(of_four[4 * i + 3] == 0);
    }
    // A part of the result is that part of all of it.
    const Rectangle part{1, 1, c.height - 1, c.width - 1};
    Bytes of_part(part.height * part.width);
    resampler.Resize(kResampled.data(), 9, 1, c.from, c.height, c.width, part, of_part.data());
    for (int64_t y = 0; y < part.height; ++y) {
      for (int64_t x = 0; x < part.width; ++x) {
        CHECK(of_part[y * part.width + x] == c.values[(y + 1) * c.width + x + 1]);
      }
    }
  }
}

// Four values of a pixel at once and one at a time go different ways, which depend on the CPU and on widths.
TEST_CASE("every width and height is scaled the same by one value and by four", "[resample]") {
  Resampler resampler;
  uint32_t random = 1;
  const auto below = [&random](uint32_t end) {
    random = random * 1664525 + 1013904223;
    return static_cast<int64_t>((uint64_t{random} * end) >> 32);
  };
  for (int i = 0; i < 300; ++i) {
    const int64_t height = 1 + below(40), width = 1 + below(40);
    const int64_t to_height = 1 + below(40), to_width = 1 + below(40);
    Bytes one, four;
    for (int64_t k = 0; k < height * width; ++k) {
      one.push_back(static_cast<uint8_t>(below(256)));
      four.insert(four.end(), {one.back(), 0, one.back(), 255});
    }
    const Rectangle from{0, 0, height, width}, all{0, 0, to_height, to_width};
    Bytes of_one(to_height * to_width), of_four(4 * of_one.size());
    resampler.Resize(one.data(), width, 1, from, to_height, to_width, all, of_one.data());
    resampler.Resize(four.data(), width, 4, from, to_height, to_width, all, of_four.data());
    for (size_t k = 0; k < of_one.size(); ++k) {
      CAPTURE(height, width, to_height, to_width, k);
      REQUIRE(of_four[4 * k] == of_one[k]);
      REQUIRE(of_four[4 * k + 1] == 0);
      REQUIRE(of_four[4 * k + 2] == of_one[k]);
      REQUIRE(of_four[4 * k + 3] == 255);
    }
  }
}

TEST_CASE("numbers are scaled with the same weights, and not rounded", "[resample]") {
  const std::vector<float> floats(kResampled.begin(), kResampled.end());
  Resampler resampler;
  for (const ResampleCase& c : kResampleCases) {
    std::vector<float> out(c.values.size());
    resampler.Resize(floats.data(), 9, c.from, c.height, c.width, out.data());
    // Bytes are rounded twice, the first time before they are weighted again.
    for (size_t i = 0; i < out.size(); ++i) CHECK(std::abs(out[i] - c.values[i]) <= 1.01f);
  }
}

TEST_CASE("what is drawn follows from seed, epoch and row by the documented formula",
          "[augmentation]") {
  const Augmentation both = Of("flip: 'horizontal' crop { padding: 4 }", {3, 32, 32});
  for (const uint64_t epoch : {0, 1, 300}) {
    for (const uint32_t row : {0u, 1u, 49999u, 4000000000u}) {
      const PhiloxBlock words = Philox(7, Stream::kAugment, epoch, row);
      CHECK(both.Flips(epoch, row) == (words[0] % 2 == 1));
      const Rectangle crop = both.CropOf(epoch, row);
      CHECK(crop.top == static_cast<int64_t>(words[1] / 4294967296.0 * 9));
      CHECK(crop.left == static_cast<int64_t>(words[2] / 4294967296.0 * 9));
      CHECK(crop.height == 32);
      CHECK(crop.width == 32);
    }
  }
  // Written down, so that it stays what it is: checkpoints go on from it.
  CHECK(Philox(7, Stream::kAugment, 3, 12345) ==
        PhiloxBlock{0x392950a1, 0xa7eb3195, 0x9fa3ce39, 0x4815c99d});
  CHECK(Philox(7, Stream::kAugment, 3, 12345 | uint64_t{2} << 32) ==
        PhiloxBlock{0x140cc4e8, 0x45f118cb, 0x1df3fb5e, 0x6881c2fc});
}

TEST_CASE("half of the rows are mirrored, and windows begin anywhere", "[augmentation]") {
  const Augmentation both = Of("flip: 'horizontal' crop { padding: 2 }", {1, 8, 8});
  int flips = 0;
  std::set<std::pair<int64_t, int64_t>> places;
  for (uint32_t row = 0; row < 2000; ++row) {
    flips += both.Flips(5, row) ? 1 : 0;
    const Rectangle crop = both.CropOf(5, row);
    places.emplace(crop.top, crop.left);
  }
  CHECK(std::abs(flips - 1000) < 100);
  CHECK(places.size() == 25);
  CHECK(places.rbegin()->first == 4);
}

TEST_CASE("a mirrored row has each line of each channel from right to left", "[augmentation]") {
  const Augmentation flip = Of("flip: 'horizontal'", {2, 2, 3});
  const Bytes x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const Bytes mirrored = {3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10};
  for (uint32_t row = 0; row < 20; ++row) {
    CHECK(Applied(flip, x, 0, row) == (flip.Flips(0, row) ? mirrored : x));
  }
}

TEST_CASE("a crop is the window in the image with its border of zeros", "[augmentation]") {
  constexpr int64_t kHeight = 3, kWidth = 4;
  for (const int64_t padding : {1, 2, 7}) {
    const Augmentation crop =
        Of("crop { padding: " + std::to_string(padding) + " }", {2, kHeight, kWidth});
    Bytes x(2 * kHeight * kWidth);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i + 1);
    for (uint32_t row = 0; row < 300; ++row) {
      const Rectangle window = crop.CropOf(1, row);
      const Bytes out = Applied(crop, x, 1, row);
      std::vector<float> of_floats(x.size());
      const std::vector<float> floats(x.begin(), x.end());
      Resampler resampler;
      crop.Apply(floats.data(), 1, row, &resampler, of_floats.data());
      for (int64_t c = 0, i = 0; c < 2; ++c) {
        for (int64_t a = 0; a < kHeight; ++a) {
          for (int64_t b = 0; b < kWidth; ++b, ++i) {
            const int64_t from_y = a + window.top - padding, from_x = b + window.left - padding;
            const bool inside = from_y >= 0 && from_y < kHeight && from_x >= 0 && from_x < kWidth;
            const uint8_t want = inside ? x[(c * kHeight + from_y) * kWidth + from_x] : 0;
            REQUIRE(out[i] == want);
            REQUIRE(of_floats[i] == want);
          }
        }
      }
    }
  }
}

TEST_CASE("a resized crop has an area and a ratio within its bounds", "[augmentation]") {
  const Augmentation resized =
      Of("resized_crop { size: 16 scale: [0.25, 0.5] ratio: [0.5, 2] }", {3, 16, 16});
  std::set<int64_t> tops;
  for (uint32_t row = 0; row < 1000; ++row) {
    const Rectangle from = resized.ResizedCropOf(2, row, 100, 150);
    CHECK(from.top >= 0);
    CHECK(from.left >= 0);
    CHECK(from.top + from.height <= 100);
    CHECK(from.left + from.width <= 150);
    const double area = static_cast<double>(from.height * from.width) / (100 * 150);
    CHECK(area > 0.24);
    CHECK(area < 0.52);
    CHECK(static_cast<double>(from.width) / from.height > 0.48);
    CHECK(static_cast<double>(from.width) / from.height < 2.1);
    tops.insert(from.top);
  }
  CHECK(tops.size() > 20);
  // No window of that area and ratio is in such a picture: the middle is taken.
  CHECK(resized.ResizedCropOf(2, 0, 4, 1000) == Rectangle{0, 496, 4, 8});
  CHECK(resized.ResizedCropOf(2, 0, 1000, 4) == Rectangle{496, 0, 8, 4});
}

TEST_CASE("a resized crop of a row is its window scaled to the row's size", "[augmentation]") {
  const Augmentation resized = Of("resized_crop { size: 9 }", {1, 9, 9});
  Bytes x(81);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 3);
  for (uint32_t row = 0; row < 30; ++row) {
    const Rectangle from = resized.ResizedCropOf(0, row, 9, 9);
    Bytes want(81);
    Resampler resampler;
    resampler.Resize(x.data(), 9, 1, from, 9, 9, {0, 0, 9, 9}, want.data());
    CHECK(Applied(resized, x, 0, row) == want);
  }
}

TEST_CASE("an augmentation without a part that has a size changes nothing", "[augmentation]") {
  CHECK(Augmentation().empty());
  CHECK(Of("crop { padding: 0 } resized_crop { size: 0 }", {1, 2, 2}).empty());
  CHECK_FALSE(Augments(v1::Augment()));
  CHECK_FALSE(Of("flip: 'horizontal'", {1, 2, 2}).empty());
  CHECK(Of("resized_crop { size: 2 }", {1, 2, 2}).WithoutResizedCrop().empty());
}

}  // namespace
}  // namespace tessera
