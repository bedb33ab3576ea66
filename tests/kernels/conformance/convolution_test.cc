// Convolutions against f64 loops. Each entry may be off by (k + 2) roundings of the sum of its k terms'
// magnitudes, as in linear_test.cc: k counts those that lie in the image, as zeros from padding round
// nothing, and what is added to is one more term of the same kind.
#include <cmath>

#include "tests/kernels/conformance/backend_under_test.h"
#include "tests/kernels/conformance/factors.h"

namespace tessera {
namespace {

// Channels, height and width of x; height, width, strides, paddings and dilations of the window; channels of y; groups.
ImagesShape Of(int64_t rows, const Image& from, const Window& window, int64_t channels,
               int64_t groups = 1) {
  return {rows, MapOf(from, window, channels, groups)};
}

const std::vector<ImagesShape>& Shapes() {
  static const std::vector<ImagesShape> shapes = {
      Of(0, {3, 5, 4}, {3, 3, 1, 1, 1, 1}, 2), Of(0, {3, 5, 4}, {}, 2), Of(1, {1, 1, 1}, {}, 1),
      Of(1, {1, 1, 1}, {3, 3, 1, 1, 1, 1}, 3), Of(1, {3, 5, 7}, {3, 3, 1, 1, 0, 0}, 16),
      Of(3, {3, 8, 6}, {3, 3, 1, 1, 1, 1}, 17), Of(2, {16, 9, 9}, {3, 3, 2, 2, 1, 1}, 33),
      Of(5, {17, 6, 5}, {}, 16), Of(4, {16, 7, 6}, {1, 1, 2, 2, 0, 0}, 3),
      Of(2, {3, 4, 3}, {1, 1, 2, 1, 0, 0}, 3), Of(3, {8, 8, 8}, {1, 1, 1, 2, 0, 0}, 16),
      Of(9, {64, 14, 14}, {1, 1, 2, 2, 0, 0}, 128), Of(3, {33, 5, 4}, {5, 1, 1, 1, 2, 0}, 17),
      Of(3, {1, 4, 9}, {1, 5, 1, 1, 0, 4}, 3), Of(7, {17, 4, 3}, {4, 3, 1, 1, 0, 0}, 33),
      Of(2, {3, 9, 4}, {3, 3, 2, 1, 1, 0}, 5), Of(3, {3, 11, 10}, {2, 3, 4, 5, 0, 1}, 4),
      Of(2, {3, 4, 6}, {3, 5, 1, 1, 2, 4}, 3), Of(2, {2, 3, 2}, {5, 5, 1, 1, 2, 2}, 3),
      Of(3, {16, 6, 5}, {2, 2, 3, 3, 1, 1}, 1), Of(33, {3, 12, 12}, {3, 3, 1, 1, 1, 1}, 16),
      Of(9, {16, 10, 8}, {3, 3, 1, 1, 1, 1}, 33),
      // Windows with gaps.
      Of(2, {3, 7, 9}, {3, 3, 1, 1, 2, 2, 2, 2}, 16),
      Of(3, {17, 9, 8}, {3, 2, 2, 1, 1, 3, 2, 3}, 5),
      Of(2, {16, 5, 5}, {2, 2, 1, 1, 3, 3, 4, 4}, 16),
      Of(1, {2, 3, 3}, {3, 1, 1, 1, 4, 0, 3, 1}, 3),
      // Groups, with as many channels each, or one, or several behind one.
      Of(0, {4, 5, 4}, {3, 3, 1, 1, 1, 1}, 6, 2), Of(3, {4, 5, 6}, {3, 3, 1, 1, 1, 1}, 6, 2),
      Of(2, {32, 7, 6}, {3, 3, 2, 2, 1, 1}, 32, 4), Of(3, {17, 6, 5}, {3, 3, 1, 1, 1, 1}, 17, 17),
      Of(2, {16, 6, 5}, {5, 5, 1, 1, 2, 2}, 32, 16), Of(2, {5, 6, 5}, {3, 3, 2, 2, 1, 1}, 15, 5),
      Of(4, {12, 5, 4}, {}, 8, 4), Of(3, {8, 8, 8}, {1, 1, 2, 2, 0, 0}, 16, 2),
      Of(9, {16, 10, 8}, {3, 3, 1, 1, 1, 1}, 32, 2), Of(2, {64, 6, 6}, {3, 3, 1, 1, 1, 1}, 64, 2),
      Of(2, {6, 8, 7}, {3, 3, 1, 1, 2, 2, 2, 2}, 4, 2),
      Of(2, {8, 9, 7}, {3, 3, 1, 2, 2, 0, 2, 1}, 8, 8)};
  return shapes;
}

int64_t SizeOfX(const ImagesShape& s) { return s.rows * s.map.from.size(); }
int64_t SizeOfY(const ImagesShape& s) { return s.rows * s.map.to.size(); }
int64_t SizeOfWeight(const ImagesShape& s) { return s.map.weight_size(); }

// Calls f(offset in x, offset in the weights, offset in y) for each term of a convolution.
template <typename F>
void ForEachTerm(const ImagesShape& s, const F& f) {
  const Image &from = s.map.from, &to = s.map.to;
  const Window& w = s.map.window;
  int64_t at = 0;
  for (int64_t n = 0; n < s.rows; ++n) {
    for (int64_t oy = 0; oy < to.height; ++oy) {
      for (int64_t ox = 0; ox < to.width; ++ox) {
        for (int64_t o = 0; o < to.channels; ++o, ++at) {
          const int64_t group_channels = from.channels / s.map.groups;
          const int64_t first = o / (to.channels / s.map.groups) * group_channels;
          for (int64_t c = 0; c < group_channels; ++c) {
            for (int64_t i = 0; i < w.height; ++i) {
              for (int64_t j = 0; j < w.width; ++j) {
                const int64_t y = oy * w.stride_y - w.padding_y + i * w.dilation_y;
                const int64_t x = ox * w.stride_x - w.padding_x + j * w.dilation_x;
                if (y < 0 || y >= from.height || x < 0 || x >= from.width) continue;
                f(((n * from.height + y) * from.width + x) * from.channels + first + c,
                  ((o * group_channels + c) * w.height + i) * w.width + j, at);
              }
            }
          }
        }
      }
    }
  }
}

struct Sum {
  double value = 0;
  double magnitude = 0;
  int64_t terms = 0;
  void Add(double term) {
    value += term;
    magnitude += std::fabs(term);
    ++terms;
  }
};

// `initial` may be empty. `of_factors`: by so much of itself may a term be off before any sum.
void CheckSums(std::vector<Sum> want, const std::vector<float>& initial,
               const std::vector<float>& got, double of_factors = 0) {
  REQUIRE(got.size() == want.size());
  int64_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    Sum& sum = want[i];
    if (!initial.empty()) {
      sum.value += double{initial[i]};
      sum.magnitude += std::fabs(double{initial[i]});
    }
    const double bound = ((sum.terms + 2) * kRoundoff + of_factors) * sum.magnitude;
    wrong += std::fabs(got[i] - sum.value) <= bound ? 0 : 1;
  }
  REQUIRE(wrong == 0);
}

template <typename T>
void CheckShape(Backend& backend, ConvolutionKernel<T>& convolution, const ImagesShape& s,
                int64_t shift, const std::vector<T>& x, const std::vector<T>& w,
                const std::vector<T>& dy, double of_factors) {
  const Image &from = s.map.from, &to = s.map.to;
  const Window& window = s.map.window;
  CAPTURE(s.rows, from.channels, from.height, from.width, to.channels, window.height, window.width,
          window.stride_y, window.stride_x, window.padding_y, window.padding_x, window.dilation_y,
          window.dilation_x, s.map.groups, shift);
  std::vector<Sum> want_y(SizeOfY(s)), want_dw(SizeOfWeight(s)), want_dx(SizeOfX(s));
  ForEachTerm(s, [&](int64_t in, int64_t weight, int64_t out) {
    want_y[out].Add(Value(x[in]) * Value(w[weight]));
    want_dw[weight].Add(Value(x[in]) * Value(dy[out]));
    want_dx[in].Add(Value(dy[out]) * Value(w[weight]));
  });
  const std::vector<float> bias = RandomValues(to.channels, 4);
  std::vector<float> bias_of_y(SizeOfY(s));
  for (size_t i = 0; i < bias_of_y.size(); ++i) bias_of_y[i] = bias[i % bias.size()];

  const DeviceArray<T> dev_x(backend, x, shift), dev_w(backend, w, shift),
      dev_dy(backend, dy, shift);
  const DeviceArray<float> dev_bias(backend, bias, shift);
  const std::vector<float> garbage_y(SizeOfY(s), NAN), garbage_w(SizeOfWeight(s), NAN),
      garbage_x(SizeOfX(s), NAN);
  const DeviceArray<float> y(backend, garbage_y, shift), y_biased(backend, garbage_y, shift),
      dw(backend, garbage_w, shift), dx(backend, garbage_x, shift);
  convolution.Forward(s, dev_x.data(), dev_w.data(), nullptr, y.data());
  CheckSums(want_y, {}, y.Read(), of_factors);
  convolution.Forward(s, dev_x.data(), dev_w.data(), dev_bias.data(), y_biased.data());
  CheckSums(want_y, bias_of_y, y_biased.Read(), of_factors);
  convolution.WeightGradient(s, dev_x.data(), dev_dy.data(), WriteMode::kOverwrite, dw.data());
  CheckSums(want_dw, {}, dw.Read(), of_factors);
  const std::vector<float> before = RandomValues(SizeOfWeight(s), 5);
  const DeviceArray<float> added(backend, before, shift);
  convolution.WeightGradient(s, dev_x.data(), dev_dy.data(), WriteMode::kAdd, added.data());
  CheckSums(want_dw, before, added.Read(), of_factors);
  convolution.InputGradient(s, dev_dy.data(), dev_w.data(), dx.data());
  CheckSums(want_dx, {}, dx.Read(), of_factors);
}

template <typename T>
void CheckShape(Backend& backend, ConvolutionKernel<T>& convolution, const ImagesShape& s,
                int64_t shift) {
  CheckShape(backend, convolution, s, shift, Factor<T>(SizeOfX(s), 1),
             Factor<T>(SizeOfWeight(s), 2), Factor<T>(SizeOfY(s), 3), 0);
}

template <typename T>
std::vector<float> AllResults(ConvolutionKernel<T>& convolution, Backend& backend,
                              const ImagesShape& s) {
  const DeviceArray<T> x(backend, Factor<T>(SizeOfX(s), 1)),
      w(backend, Factor<T>(SizeOfWeight(s), 2)), dy(backend, Factor<T>(SizeOfY(s), 3));
  const DeviceArray<float> y(backend, SizeOfY(s)), dw(backend, SizeOfWeight(s)),
      dx(backend, SizeOfX(s));
  convolution.Forward(s, x.data(), w.data(), nullptr, y.data());
  convolution.WeightGradient(s, x.data(), dy.data(), WriteMode::kOverwrite, dw.data());
  convolution.WeightGradient(s, x.data(), dy.data(), WriteMode::kAdd, dw.data());
  convolution.InputGradient(s, dy.data(), w.data(), dx.data());
  std::vector<float> all = y.Read();
  for (const std::vector<float>& more : {dw.Read(), dx.Read()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

TEST_CASE("f32 convolutions equal f64 loops within their roundings", "[convolution]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const int64_t shift : {0, 1}) {
    for (const ImagesShape& shape : Shapes()) {
      CheckShape(*backend, backend->convolution(), shape, shift);
    }
  }
}

TEST_CASE("convolutions of random shapes, groups and gaps equal f64 loops", "[convolution]") {
  const auto backend = BackendUnderTest(1);
  const auto bf16 = backend->convolution_bf16();
  std::mt19937 random(7);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < 60; ++i) {
    const int64_t groups = draw(0, 2) == 0 ? 1 : draw(2, 5);
    Window window{draw(1, 4), draw(1, 4), draw(1, 3), draw(1, 3), 0, 0, draw(1, 3), draw(1, 3)};
    window.padding_y = draw(0, window.span_y() - 1);
    window.padding_x = draw(0, window.span_x() - 1);
    const int64_t room_y = std::max<int64_t>(1, window.span_y() - 2 * window.padding_y);
    const int64_t room_x = std::max<int64_t>(1, window.span_x() - 2 * window.padding_x);
    const Image from{groups * draw(1, 9), draw(room_y, room_y + 6), draw(room_x, room_x + 6)};
    const ImagesShape shape = Of(draw(1, 5), from, window, groups * draw(1, 9), groups);
    CAPTURE(i);
    CheckShape(*backend, backend->convolution(), shape, draw(0, 1));
    if (bf16.ok()) CheckShape(*backend, **bf16, shape, draw(0, 1));
  }
}

TEST_CASE("bf16 convolutions equal f64 loops over the same bf16 values within f32 roundings",
          "[convolution]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const auto convolution = backend->convolution_bf16();
  if (!convolution.ok()) {
    CHECK(convolution.status().code() == absl::StatusCode::kFailedPrecondition);
    return;
  }
  for (const int64_t shift : {0, 1}) {
    for (const ImagesShape& shape : Shapes()) CheckShape(*backend, **convolution, shape, shift);
  }
}

// A factor that has no more than tf32's 10 bits of mantissa stays as it is; of one that has more the rest
// may be cut off, which is 2^-10 of it at most.
TEST_CASE("tf32 convolutions round their factors and nothing else", "[convolution]") {
  const auto backend = BackendUnderTest(1);
  const auto convolution = backend->convolution_tf32();
  if (!convolution.ok()) {
    CHECK(convolution.status().code() == absl::StatusCode::kFailedPrecondition);
    return;
  }
  for (const ImagesShape& s : {Of(3, {17, 6, 5}, {3, 3, 1, 1, 1, 1}, 16), Of(5, {33, 4, 3}, {}, 3),
                               Of(3, {16, 6, 5}, {3, 3, 1, 1, 2, 2, 2, 2}, 8, 4)}) {
    for (const bool rounded : {true, false}) {
      std::vector<float> x = RandomValues(SizeOfX(s), 1), w = RandomValues(SizeOfWeight(s), 2),
                         dy = RandomValues(SizeOfY(s), 3);
      for (std::vector<float>* const values : {&x, &w, &dy}) {
        for (float& value : *values) value = rounded ? Widen(RoundToBf16(value)) : value;
      }
      CheckShape(*backend, **convolution, s, 0, x, w, dy, rounded ? 0.0 : 2 * 0x1p-10 + 0x1p-20);
    }
  }
}

TEST_CASE("convolutions have the same bits in every run of the same options",
          "[convolution][determinism]") {
  const int threads = GENERATE(from_range(ThreadsUnderTest()));
  const ImagesShape shape = GENERATE(Of(16, {17, 9, 8}, {3, 3, 1, 1, 1, 1}, 33),
                                     Of(16, {32, 9, 8}, {3, 3, 1, 1, 1, 1}, 32, 4));
  const auto first = BackendUnderTest(threads);
  const auto second = BackendUnderTest(threads);
  const auto check = [&](auto& of_first, auto& of_second) {
    const std::vector<float> want = AllResults(of_first, *first, shape);
    CHECK(AllResults(of_first, *first, shape) == want);
    CHECK(AllResults(of_second, *second, shape) == want);
  };
  check(first->convolution(), second->convolution());
  if (const auto bf16 = first->convolution_bf16(); bf16.ok()) {
    check(**bf16, **second->convolution_bf16());
  }
  if (const auto tf32 = first->convolution_tf32(); tf32.ok()) {
    check(**tf32, **second->convolution_tf32());
  }
}

TEST_CASE("one kernel serves changing shapes and addresses of images", "[convolution]") {
  const auto backend = BackendUnderTest(1);
  for (int round = 0; round < 2; ++round) {
    for (int64_t rows = 10; rows > 0; rows -= 3) {
      for (const int64_t stride : {1, 2}) {
        const ImagesShape shape = Of(rows, {3, 6, 5}, {3, 3, stride, stride, 1, 1}, 4);
        CheckShape(*backend, backend->convolution(), shape, round);
        const auto bf16 = backend->convolution_bf16();
        if (bf16.ok()) CheckShape(*backend, **bf16, shape, round);
      }
    }
  }
}

}  // namespace tessera
