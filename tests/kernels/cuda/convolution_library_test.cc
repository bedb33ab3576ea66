// Convolutions by the machine's library: the same bits as by products, over small integers, whose sums are exact; and
// by products wherever the library does not know how.
#include <catch2/catch.hpp>
#include <cstdint>

#include "tests/kernels/cuda/convolution_results.h"
#include "tests/kernels/cuda/emulation/faults.h"

namespace tessera {
namespace {

using cuda::Faults;
using Factors = cuda::Product::Factors;
using Kind = cuda::ConvolutionPass::Kind;

// Passes that Compute asks for.
constexpr int64_t kForward = 1, kWeightGradients = 2, kInputGradient = 1;
constexpr int64_t kAll = kForward + kWeightGradients + kInputGradient;

// A machine with a library, for one test.
class WithLibrary {
 public:
  WithLibrary() {
    Faults().convolutions = true;
    Faults().convolutions_done = 0;
  }
  ~WithLibrary() {
    Faults().convolutions = false;
    Faults().convolution_workspace = 768;
    Faults().convolution_unknown = Faults().convolution_refused = -1;
  }
};

ImagesShape SomeImages() { return {5, MapOf({5, 6, 4}, {3, 2, 2, 1, 1, 1}, 3)}; }

// By products, of which the machine may have a library as well.
Results ByProducts(const ImagesShape& s, Factors factors) {
  const int64_t before = Faults().convolutions_done;
  const Results results = Compute<float>(s, factors, {int64_t{64} << 20, false});
  CHECK(Faults().convolutions_done == before);
  return results;
}

void CheckSame(const Results& got, const Results& want) {
  CHECK(got.y == want.y);
  CHECK(got.dw == want.dw);
  CHECK(got.dx == want.dx);
  CHECK(got.scratch <= got.promised);
}

}  // namespace

TEST_CASE("a machine's library computes every pass in f32 and tf32", "[cuda][convolution]") {
  const WithLibrary library;
  for (const Factors factors : {Factors::kF32, Factors::kTf32}) {
    for (const ImagesShape& s :
         {SomeImages(), ImagesShape{1, MapOf({1, 1, 1}, {3, 3, 1, 1, 1, 1}, 3)},
          ImagesShape{3, MapOf({8, 7, 5}, {1, 3, 1, 2, 0, 0}, 9)},
          ImagesShape{2, MapOf({3, 5, 5}, {1, 1, 2, 2, 0, 0}, 4)}}) {
      const Results want = ByProducts(s, factors);
      Faults().convolutions_done = 0;
      CheckSame(Compute<float>(s, factors, {}), want);
      CHECK(Faults().convolutions_done == kAll);
    }
  }
}

TEST_CASE("a pass that the library does not know is computed by products", "[cuda][convolution]") {
  const WithLibrary library;
  const Results want = ByProducts(SomeImages(), Factors::kF32);
  // It may say so when it is asked, or when it is to begin.
  for (std::atomic<int>* const fault :
       {&Faults().convolution_unknown, &Faults().convolution_refused}) {
    for (const auto& [kind, passes] :
         {std::pair(Kind::kForward, kForward), std::pair(Kind::kWeightGradient, kWeightGradients),
          std::pair(Kind::kInputGradient, kInputGradient)}) {
      *fault = static_cast<int>(kind);
      Faults().convolutions_done = 0;
      CheckSame(Compute<float>(SomeImages(), Factors::kF32, {}), want);
      CHECK(Faults().convolutions_done == kAll - passes);
    }
    *fault = -1;
  }
}

TEST_CASE("the library is asked for what it can have, and no more", "[cuda][convolution]") {
  const WithLibrary library;
  const ImagesShape s = SomeImages();
  const Results want = ByProducts(s, Factors::kF32);
  SECTION("arrays that are not aligned") {
    for (const int64_t shift : {1, 2, 3}) {
      CheckSame(Compute<float>(s, Factors::kF32, {}, shift), want);
    }
    CHECK(Faults().convolutions_done == 0);
    CheckSame(Compute<float>(s, Factors::kF32, {}, 4), want);
    CHECK(Faults().convolutions_done == kAll);
  }
  SECTION("as large a workspace as it may have") {
    Faults().convolution_workspace = cuda::ConvolutionPass::kWorkspaceBytesMax;
    CheckSame(Compute<float>(s, Factors::kF32, {}), want);
    CHECK(Faults().convolutions_done == kAll);
  }
  SECTION("factors of bf16, and windows of one place") {
    CheckSame(Compute<Bf16>(s, Factors::kBf16, {}), want);
    const ImagesShape places{3, MapOf({5, 6, 4}, {}, 3)};
    CHECK(Compute<float>(places, Factors::kF32, {}).promised == 0);
    CHECK(Faults().convolutions_done == 0);
  }
}

TEST_CASE("a library's scratch is promised where there is one", "[cuda][convolution]") {
  const ImagesShape s = SomeImages();
  const int64_t without = Compute<float>(s, Factors::kF32, {}).promised;
  const WithLibrary library;
  const Results results = Compute<float>(s, Factors::kF32, {});
  CHECK(results.promised > without + cuda::ConvolutionPass::kWorkspaceBytesMax / 2);
  // 3 x 5 x 3 x 2 weights, rounded up to 256 bytes, and its own.
  CHECK(results.scratch == 512 + 768);
}

}  // namespace tessera
