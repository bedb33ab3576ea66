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
    Faults().convolution_rows_unknown = -1;
  }
};

ImagesShape SomeImages() { return {5, MapOf({5, 6, 4}, {3, 2, 2, 1, 1, 1}, 3)}; }

// The library's wherever it can, though products may be faster.
CudaConvolutionOptions ByLibrary() {
  CudaConvolutionOptions options;
  options.cudnn_if_slower = true;
  return options;
}

// By products, of which the machine may have a library as well.
template <typename T>
Results ByProducts(const ImagesShape& s, Factors factors) {
  const int64_t before = Faults().convolutions_done;
  const Results results = Compute<T>(s, factors, {int64_t{64} << 20, false});
  CHECK(Faults().convolutions_done == before);
  return results;
}

void CheckSame(const Results& got, const Results& want) {
  CHECK(got.y == want.y);
  CHECK(got.dw == want.dw);
  CHECK(got.dx == want.dx);
  CHECK(got.scratch <= got.promised);
}

template <typename T>
void CheckPasses(const ImagesShape& s, Factors factors, const CudaConvolutionOptions& options,
                 int64_t passes) {
  const Results want = ByProducts<T>(s, factors);
  Faults().convolutions_done = 0;
  const Results got = Compute<T>(s, factors, options);
  CheckSame(got, want);
  CHECK(Faults().convolutions_done == passes);
  CHECK(got.convolutions == passes);
}

// So many of SomeImages are widened for the library at a time, together with their results.
CudaConvolutionOptions Widening(int64_t images) {
  CudaConvolutionOptions options = ByLibrary();
  options.widened_bytes = images * (5 * 6 * 4 + 3 * 3 * 5) * static_cast<int64_t>(sizeof(float));
  return options;
}

}  // namespace

TEST_CASE("a machine's library computes every pass in every precision", "[cuda][convolution]") {
  const WithLibrary library;
  for (const ImagesShape& s :
       {SomeImages(), ImagesShape{1, MapOf({1, 1, 1}, {3, 3, 1, 1, 1, 1}, 3)},
        ImagesShape{3, MapOf({8, 7, 5}, {1, 3, 1, 2, 0, 0}, 9)},
        ImagesShape{2, MapOf({3, 5, 5}, {1, 1, 2, 2, 0, 0}, 4)}}) {
    CheckPasses<float>(s, Factors::kTf32, ByLibrary(), kAll);
    CheckPasses<Bf16>(s, Factors::kBf16, ByLibrary(), kAll);
    CheckPasses<float>(s, Factors::kF32, ByLibrary(), kAll);
  }
}

TEST_CASE("unless told otherwise the library has what products are not faster at",
          "[cuda][convolution]") {
  const WithLibrary library;
  const auto images = [](int64_t from, int64_t to, int64_t stride_y, int64_t stride_x) {
    return ImagesShape{2, MapOf({from, 4, 5}, {3, 3, stride_y, stride_x, 1, 1}, to)};
  };
  const ImagesShape of_library = images(32, 32, 1, 1);
  CheckPasses<float>(of_library, Factors::kTf32, {}, kAll);
  CheckPasses<Bf16>(of_library, Factors::kBf16, {}, kAll);
  CheckPasses<float>(of_library, Factors::kF32, {}, 0);
  for (const ImagesShape& s : {images(31, 32, 1, 1), images(32, 31, 1, 1), images(32, 32, 2, 1),
                               images(32, 32, 1, 2), images(32, 32, 2, 2)}) {
    CAPTURE(s.map.from.channels, s.map.to.channels, s.map.window.stride_y, s.map.window.stride_x);
    CheckPasses<float>(s, Factors::kTf32, {}, 0);
    CheckPasses<Bf16>(s, Factors::kBf16, {}, 0);
  }
}

TEST_CASE("a pass that the library does not know is computed by products", "[cuda][convolution]") {
  const WithLibrary library;
  // It may say so when it is asked, or when it is to begin.
  for (std::atomic<int>* const fault :
       {&Faults().convolution_unknown, &Faults().convolution_refused}) {
    for (const auto& [kind, passes] :
         {std::pair(Kind::kForward, kForward), std::pair(Kind::kWeightGradient, kWeightGradients),
          std::pair(Kind::kInputGradient, kInputGradient)}) {
      *fault = static_cast<int>(kind);
      CheckPasses<float>(SomeImages(), Factors::kTf32, ByLibrary(), kAll - passes);
      CheckPasses<Bf16>(SomeImages(), Factors::kBf16, ByLibrary(), kAll - passes);
    }
    *fault = -1;
  }
}

TEST_CASE("the library is asked for what it can have, and no more", "[cuda][convolution]") {
  const WithLibrary library;
  const ImagesShape s = SomeImages();
  const Results want = ByProducts<float>(s, Factors::kTf32);
  SECTION("arrays that are not aligned") {
    for (const int64_t shift : {1, 2, 3}) {
      CheckSame(Compute<float>(s, Factors::kTf32, ByLibrary(), shift), want);
    }
    CHECK(Faults().convolutions_done == 0);
    CheckSame(Compute<float>(s, Factors::kTf32, ByLibrary(), 4), want);
    CHECK(Faults().convolutions_done == kAll);
  }
  SECTION("of bf16, results that are not aligned: factors are copied anyhow") {
    CheckSame(Compute<Bf16>(s, Factors::kBf16, ByLibrary(), 3), want);
    CHECK(Faults().convolutions_done == kWeightGradients);
    CheckSame(Compute<Bf16>(s, Factors::kBf16, ByLibrary(), 4), want);
    CHECK(Faults().convolutions_done == kWeightGradients + kAll);
  }
  SECTION("as large a workspace as it may have") {
    Faults().convolution_workspace = cuda::ConvolutionPass::kWorkspaceBytesMax;
    CheckSame(Compute<float>(s, Factors::kTf32, ByLibrary()), want);
    CHECK(Faults().convolutions_done == kAll);
    const Results bf16 = Compute<Bf16>(s, Factors::kBf16, ByLibrary());
    CheckSame(bf16, want);
    CHECK(bf16.scratch == bf16.promised);
    CHECK(Faults().convolutions_done == 2 * kAll);
  }
  SECTION("windows of one place") {
    const ImagesShape places{3, MapOf({5, 6, 4}, {}, 3)};
    CHECK(Compute<float>(places, Factors::kTf32, ByLibrary()).promised == 0);
    CHECK(Compute<Bf16>(places, Factors::kBf16, ByLibrary()).promised == 0);
    CHECK(Faults().convolutions_done == 0);
  }
}

TEST_CASE("images of bf16 are widened for the library in parts", "[cuda][convolution]") {
  const WithLibrary library;
  const ImagesShape s{11, SomeImages().map};
  const Results want = ByProducts<Bf16>(s, Factors::kBf16);
  SECTION("of so many, or of fewer, so that results stay aligned") {
    // 8 and 3 images; the passes that widen one array alone have all.
    CheckPasses<Bf16>(s, Factors::kBf16, Widening(10), 2 * kWeightGradients + 2);
    // 4, 4 and 3, forward as well; the gradients of results are smaller, and go at once.
    CheckPasses<Bf16>(s, Factors::kBf16, Widening(4), 3 * kWeightGradients + 3 + 1);
  }
  SECTION("of less than four, where results may not be aligned") {
    // An image of y is 45 values: every fourth is aligned. Of x there are 120.
    const Results got = Compute<Bf16>(s, Factors::kBf16, Widening(1));
    CheckSame(got, want);
    CHECK(got.convolutions == 11 * kWeightGradients + 3 + 4);
  }
  SECTION("with what the library does not know by products in between") {
    for (const int64_t rows : {4, 3}) {
      Faults().convolution_rows_unknown = rows;
      CheckSame(Compute<Bf16>(s, Factors::kBf16, Widening(4)), want);
    }
  }
  SECTION("in the scratch that is promised") {
    Faults().convolution_workspace = cuda::ConvolutionPass::kWorkspaceBytesMax;
    for (const int64_t images : {1, 5, 11}) {
      const Results got = Compute<Bf16>(s, Factors::kBf16, Widening(images));
      CheckSame(got, want);
      CHECK(got.scratch == got.promised);
    }
  }
}

TEST_CASE("a library's scratch is promised where there is one", "[cuda][convolution]") {
  const ImagesShape s = SomeImages();
  const int64_t without = Compute<float>(s, Factors::kF32, {}).promised;
  const WithLibrary library;
  for (const Factors factors : {Factors::kF32, Factors::kTf32}) {
    // By products, as it is small: only patches.
    CHECK(Compute<float>(s, factors, {}).promised == without);
    const Results results = Compute<float>(s, factors, ByLibrary());
    CHECK(results.promised > without + cuda::ConvolutionPass::kWorkspaceBytesMax / 2);
    // 3 x 5 x 3 x 2 weights, rounded up to 256 bytes, and its own.
    CHECK(results.scratch == 512 + 768);
  }
  // 5 images of 120 values and of 45 as well.
  CHECK(Compute<Bf16>(s, Factors::kBf16, ByLibrary()).scratch == 512 + 2560 + 1024 + 768);
}

}  // namespace tessera
