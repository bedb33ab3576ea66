// A convolution whose patches do not fit at once does the same in parts: over small integers, whose sums are
// exact, to the bit. It takes the scratch that it says.
#include <catch2/catch.hpp>
#include <cstdint>
#include <type_traits>

#include "tests/kernels/cuda/convolution_results.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 7;

template <typename T>
Results InParts(const ImagesShape& s, cuda::Product::Factors factors, int64_t patch_bytes) {
  const Results results = Compute<T>(s, factors, {patch_bytes, true});
  CHECK(results.scratch == results.promised);
  return results;
}

template <typename T>
void Check(cuda::Product::Factors factors) {
  const ImagesShape s{kRows, MapOf({5, 6, 4}, {3, 2, 2, 1, 1, 1}, 3)};
  const int64_t image = s.map.to.positions() * 5 * 6 * static_cast<int64_t>(sizeof(float));
  const Results want = InParts<T>(s, factors, kRows * image);
  CHECK(want.scratch == kRows * image);
  CHECK(want.y != std::vector<float>(want.y.size()));
  // So many images at once, or twice as many of Bf16's patches; a little more makes no more of them.
  for (const int64_t images : {1, 2, 3, 6}) {
    CAPTURE(images);
    const Results got = InParts<T>(s, factors, images * image + 16);
    CHECK(got.scratch == images * image);
    CHECK(got.y == want.y);
    CHECK(got.dw == want.dw);
    CHECK(got.dx == want.dx);
  }
  // Where Bf16's patches fill what f32's leave.
  const Results most = InParts<T>(s, factors, 5 * image / 2);
  CHECK(most.scratch == (std::is_same_v<T, float> ? 2 * image : 5 * image / 2));
  CHECK(most.dw == want.dw);
  // One image is always at once.
  const Results got = InParts<T>(s, factors, 16);
  CHECK(got.scratch == image);
  CHECK(got.y == want.y);
  CHECK(got.dw == want.dw);
  CHECK(got.dx == want.dx);
}

}  // namespace

TEST_CASE("patches that do not fit at once are laid out in parts", "[cuda][convolution]") {
  Check<float>(cuda::Product::Factors::kF32);
  Check<Bf16>(cuda::Product::Factors::kBf16);
}

TEST_CASE("images that are patches need no room", "[cuda][convolution]") {
  const ImagesShape s{kRows, MapOf({5, 6, 4}, {}, 3)};
  CHECK(InParts<float>(s, cuda::Product::Factors::kF32, 1 << 20).scratch == 0);
}

}  // namespace tessera
