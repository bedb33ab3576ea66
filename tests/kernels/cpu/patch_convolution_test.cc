// Convolutions by products of patches, and oneDNN's, against their definition in whole numbers.
#include "kernels/cpu/patch_convolution.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/convolution.h"
#include "kernels/cpu/threads.h"

namespace tessera {
namespace {

struct Arrays {
  std::vector<float> x, weight, bias, dy, y, dweight, dx;
};

// Whole numbers, so that sums are exact in any order.
std::vector<float> WholeNumbers(int64_t count, int64_t period) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7 % period - period / 2);
  return values;
}

// The factors, and the results by the definition of kernels/convolution.h.
Arrays ByDefinition(const ImagesShape& shape) {
  const Image &from = shape.map.from, &to = shape.map.to;
  const Window& w = shape.map.window;
  Arrays all;
  all.x = WholeNumbers(shape.rows * from.size(), 11);
  all.weight = WholeNumbers(shape.map.weight_size(), 9);
  all.bias = WholeNumbers(to.channels, 5);
  all.dy = WholeNumbers(shape.rows * to.size(), 13);
  all.y.resize(all.dy.size());
  all.dweight.resize(all.weight.size());
  all.dx.resize(all.x.size());
  for (int64_t place = 0; place < shape.rows * to.positions(); ++place) {
    const int64_t image = place / to.positions() * from.size();
    const int64_t row = place % to.positions() / to.width * w.stride_y - w.padding_y;
    const int64_t column = place % to.width * w.stride_x - w.padding_x;
    for (int64_t o = 0; o < to.channels; ++o) {
      const int64_t out = place * to.channels + o;
      all.y[out] = all.bias[o];
      for (int64_t at = 0; at < from.channels * w.size(); ++at) {
        const int64_t c = at / w.size();
        const int64_t y = row + at % w.size() / w.width * w.dilation_y;
        const int64_t x = column + at % w.width * w.dilation_x;
        if (y < 0 || y >= from.height || x < 0 || x >= from.width) continue;
        const int64_t in = image + (y * from.width + x) * from.channels + c;
        const int64_t weight = o * from.channels * w.size() + at;
        all.y[out] += all.weight[weight] * all.x[in];
        all.dweight[weight] += all.dy[out] * all.x[in];
        all.dx[in] += all.weight[weight] * all.dy[out];
      }
    }
  }
  return all;
}

template <typename Convolution>
void Check(const ImagesShape& shape, int threads) {
  Convolution convolution{CpuThreads(threads)};
  const Arrays want = ByDefinition(shape);
  Arrays got = want;
  got.y.assign(want.y.size(), 1e30f);
  convolution.Forward(shape, want.x.data(), want.weight.data(), want.bias.data(), got.y.data());
  CHECK(got.y == want.y);
  for (size_t i = 0; i < got.y.size(); ++i) got.y[i] = want.bias[i % want.bias.size()];
  std::vector<float> plain(want.y.size(), 1e30f);
  convolution.Forward(shape, want.x.data(), want.weight.data(), nullptr, plain.data());
  for (size_t i = 0; i < plain.size(); ++i) got.y[i] += plain[i];
  CHECK(got.y == want.y);

  got.dweight.assign(want.dweight.size(), 1e30f);
  convolution.WeightGradient(shape, want.x.data(), want.dy.data(), WriteMode::kOverwrite,
                             got.dweight.data());
  CHECK(got.dweight == want.dweight);
  convolution.WeightGradient(shape, want.x.data(), want.dy.data(), WriteMode::kAdd,
                             got.dweight.data());
  for (float& value : got.dweight) value /= 2;
  CHECK(got.dweight == want.dweight);

  if (shape.map.window.stride_y * shape.map.window.stride_x == 1) {
    got.dx.assign(want.dx.size(), 1e30f);
    convolution.InputGradient(shape, want.dy.data(), want.weight.data(), got.dx.data());
    CHECK(got.dx == want.dx);
  }
  CHECK(convolution.TakeStatus().ok());
}

}  // namespace

TEST_CASE("convolutions are what their definition says", "[convolution]") {
  // Height, width, strides, padding and dilation of windows.
  const std::vector<ImageMap> maps = {
      MapOf({3, 6, 5}, {3, 3, 1, 1, 1, 1}, 4),       MapOf({64, 4, 4}, {3, 3, 1, 1, 1, 1}, 33),
      MapOf({5, 7, 9}, {3, 2, 1, 1, 0, 1}, 2),       MapOf({2, 9, 8}, {5, 3, 2, 3, 2, 1}, 3),
      MapOf({8, 5, 5}, {1, 1, 1, 1, 0, 0}, 6),       MapOf({8, 5, 6}, {1, 1, 2, 2, 0, 0}, 6),
      MapOf({4, 5, 5}, {1, 1, 1, 1, 1, 1}, 3),       MapOf({3, 9, 9}, {3, 3, 1, 1, 2, 2, 2, 2}, 5),
      MapOf({3, 9, 9}, {3, 3, 2, 1, 2, 0, 2, 3}, 5), MapOf({6, 1, 1}, {3, 3, 1, 1, 1, 1}, 7),
      MapOf({1, 2, 2}, {3, 3, 1, 1, 3, 3}, 1),
  };
  const ImageMap& map = maps[GENERATE(range(0, 11))];
  // None, one, and more than are laid out at a time.
  const int64_t rows = GENERATE(0, 1, 40);
  const int threads = GENERATE(1, 3);
  CAPTURE(map.from.channels, map.window.height, map.window.width, rows, threads);
  Check<CpuPatchConvolution>({rows, map}, threads);
  Check<CpuConvolution<float>>({rows, map}, threads);
}

TEST_CASE("patches that are larger than the room for them are laid out one at a time",
          "[convolution]") {
  Check<CpuPatchConvolution>({2, MapOf({120000, 2, 2}, {3, 3, 1, 1, 1, 1}, 2)}, 2);
}

}  // namespace tessera
