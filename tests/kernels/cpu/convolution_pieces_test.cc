// Images of strided windows of one pixel are gathered in pieces of 4 MiB.
#include <catch2/catch.hpp>
#include <type_traits>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cpu/convolution.h"
#include "kernels/cpu/threads.h"
#include "kernels/devices.h"

namespace tessera {
namespace {

// Whole numbers, so that sums are exact in any order.
std::vector<float> SmallNumbers(int64_t count, int64_t period) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % period - 3);
  return values;
}

template <typename T>
std::vector<T> As(const std::vector<float>& values) {
  std::vector<T> as;
  for (const float value : values) {
    if constexpr (std::is_same_v<T, float>) {
      as.push_back(value);
    } else {
      as.push_back(RoundToBf16(value));
    }
  }
  return as;
}

template <typename T>
void CheckPieces(ConvolutionKernel<T>& convolution) {
  constexpr int64_t kChannels = 4096;
  // Two places of each image: three pieces of f32, two of bf16.
  const ImagesShape shape = {260, MapOf({kChannels, 1, 3}, {1, 1, 1, 2, 0, 0}, 1)};
  REQUIRE(shape.map.to.size() == 2);
  const std::vector<float> x = SmallNumbers(shape.rows * shape.map.from.size(), 7);
  const std::vector<float> dy = SmallNumbers(shape.rows * 2, 5);
  std::vector<float> want(kChannels);
  for (int64_t place = 0; place < shape.rows * 2; ++place) {
    const float* const pixel = &x[(place / 2 * 3 + place % 2 * 2) * kChannels];
    for (int64_t c = 0; c < kChannels; ++c) want[c] += dy[place] * pixel[c];
  }
  const std::vector<T> x_as = As<T>(x), dy_as = As<T>(dy);
  std::vector<float> got(kChannels, 1e30f);
  convolution.WeightGradient(shape, x_as.data(), dy_as.data(), WriteMode::kOverwrite, got.data());
  CHECK(got == want);
  convolution.WeightGradient(shape, x_as.data(), dy_as.data(), WriteMode::kAdd, got.data());
  for (float& value : want) value *= 2;
  CHECK(got == want);
}

}  // namespace

TEST_CASE("gradients of strided windows of one pixel add up over pieces of images",
          "[convolution]") {
  const int threads = GENERATE(1, 2);
  // The backend may do f32 in another way.
  CpuConvolution<float> convolution{CpuThreads(threads)};
  CheckPieces(convolution);
  CHECK(convolution.TakeStatus().ok());
  const auto backend = CreateBackend("cpu", threads);
  REQUIRE(backend.ok());
  const auto bf16 = (*backend)->convolution_bf16();
  if (bf16.ok()) CheckPieces(**bf16);
  CHECK((*backend)->Finish().ok());
}

}  // namespace tessera
