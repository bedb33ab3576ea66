// A convolution whose patches do not fit at once does the same in parts: over small integers, whose sums are
// exact, to the bit. It takes the scratch that it says.
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/convolution.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/scratch.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 7;

template <typename T>
std::vector<T> Integers(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(n);
  for (T& value : values) {
    const float integer = static_cast<float>(random() % 9) - 4;
    if constexpr (std::is_same_v<T, float>) {
      value = integer;
    } else {
      value = RoundToBf16(integer);
    }
  }
  return values;
}

struct Results {
  std::vector<float> y, dw, dx;
  int64_t scratch = 0;  // bytes
};

// All three, with so many bytes of patches at a time.
template <typename T>
Results Compute(const ImagesShape& s, cuda::Product::Factors factors, int64_t patch_bytes) {
  auto device = cuda::Device::Open(0);
  REQUIRE(device.ok());
  CudaMemory memory(device->get());
  const auto send = [&](const auto& values) {
    using V = typename std::decay_t<decltype(values)>::value_type;
    auto buffer = Buffer<V>::Create(memory, static_cast<int64_t>(values.size()));
    REQUIRE(buffer.ok());
    memory.CopyIn(values.data(), buffer->bytes(), buffer->data());
    return std::move(*buffer);
  };
  const int64_t weights = s.map.to.channels * s.map.from.channels * s.map.window.size();
  const auto x = send(Integers<T>(s.rows * s.map.from.size(), 1)),
             w = send(Integers<T>(weights, 2)), dy = send(Integers<T>(s.rows * s.map.to.size(), 3));
  const auto bias = send(Integers<float>(s.map.to.channels, 4));
  Results results;
  results.y.resize(s.rows * s.map.to.size());
  results.dw = Integers<float>(weights, 5);
  results.dx.resize(s.rows * s.map.from.size());
  const auto y = send(results.y), dw = send(results.dw), dx = send(results.dx);
  REQUIRE((*device)->Synchronize().ok());
  const int64_t free = (*device)->memory_free();
  CudaScratch scratch(&memory);
  CudaConvolution<T> convolution(device->get(), factors, &scratch, patch_bytes);
  const int64_t promised = convolution.ScratchBytes(s);
  for (int64_t rows = 0; rows <= s.rows; ++rows) {
    CHECK(convolution.ScratchBytes({rows, s.map}) <= promised);
  }
  convolution.Forward(s, x.data(), w.data(), bias.data(), y.data());
  // The second overwrites what the first has added to.
  convolution.WeightGradient(s, x.data(), dy.data(), WriteMode::kAdd, dw.data());
  memory.CopyOut(dw.data(), dw.bytes(), results.dw.data());
  const std::vector<float> added = results.dw;
  convolution.WeightGradient(s, x.data(), dy.data(), WriteMode::kOverwrite, dw.data());
  convolution.InputGradient(s, dy.data(), w.data(), dx.data());
  memory.CopyOut(y.data(), y.bytes(), results.y.data());
  memory.CopyOut(dw.data(), dw.bytes(), results.dw.data());
  memory.CopyOut(dx.data(), dx.bytes(), results.dx.data());
  results.dw.insert(results.dw.end(), added.begin(), added.end());
  results.scratch = free - (*device)->memory_free();
  CHECK(results.scratch == promised);
  REQUIRE((*device)->Synchronize().ok());
  REQUIRE(scratch.TakeStatus().ok());
  return results;
}

template <typename T>
void Check(cuda::Product::Factors factors) {
  const ImagesShape s{kRows, MapOf({5, 6, 4}, {3, 2, 2, 1, 1, 1}, 3)};
  const int64_t image = s.map.to.positions() * 5 * 6 * static_cast<int64_t>(sizeof(float));
  const Results want = Compute<T>(s, factors, kRows * image);
  CHECK(want.scratch == kRows * image);
  CHECK(want.y != std::vector<float>(want.y.size()));
  // So many images at once, or twice as many of Bf16's patches; a little more makes no more of them.
  for (const int64_t images : {1, 2, 3, 6}) {
    CAPTURE(images);
    const Results got = Compute<T>(s, factors, images * image + 16);
    CHECK(got.scratch == images * image);
    CHECK(got.y == want.y);
    CHECK(got.dw == want.dw);
    CHECK(got.dx == want.dx);
  }
  // Where Bf16's patches fill what f32's leave.
  const Results most = Compute<T>(s, factors, 5 * image / 2);
  CHECK(most.scratch == (std::is_same_v<T, float> ? 2 * image : 5 * image / 2));
  CHECK(most.dw == want.dw);
  // One image is always at once.
  const Results got = Compute<T>(s, factors, 16);
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
  CHECK(Compute<float>(s, cuda::Product::Factors::kF32, 1 << 20).scratch == 0);
}

}  // namespace tessera
