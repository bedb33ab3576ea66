// Local response normalisation against f64 loops.
#include <cmath>

#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

struct Case {
  MatrixShape shape;
  ResponseWindow window;
  float spread = 1;
};

// Windows of one channel, of an even number, wider than all channels, and powers that are computed in either way.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{0, 3}, {5, 1, 0.75, 1}},        {{1, 1}, {5, 1e-4, 0.75, 1}},
      {{3, 4}, {1, 2, 0.75, 1}},        {{5, 7}, {2, 1, 0.75, 2}},
      {{4, 9}, {4, 3, 0.5, 1}},         {{6, 17}, {5, 1e-4, 0.75, 2}},
      {{6, 17}, {5, 2, 0.75, 0.1}, 10}, {{3, 33}, {3, 5, 1.25, 0.5}},
      {{2, 5}, {65536, 700, 0.75, 1}},  {{7, 6}, {9, 1, 2, 1}, 1e-3f},
      {{130, 96}, {5, 1, 0.75, 1}},     {{64, 300}, {6, 0.5, 3.5, 1}},
      {{9, 16}, {5, 0, 0.75, 3}},       {{9, 16}, {5, 1, 0, 3}}};
  return cases;
}

struct Exact {
  std::vector<double> s, y, dx;
};

Exact ExactOf(const Case& c, const std::vector<float>& x, const std::vector<float>& dy) {
  const int64_t n = c.shape.columns, size = c.window.size;
  const auto count = static_cast<size_t>(c.shape.size());
  Exact exact{std::vector<double>(count), std::vector<double>(count), std::vector<double>(count)};
  const double share = c.window.alpha / static_cast<double>(size), beta = c.window.beta;
  // PyTorch pads channels by size / 2 in front and (size - 1) / 2 behind.
  const auto for_window = [&](int64_t channel, const auto& f) {
    for (int64_t j = std::max<int64_t>(0, channel - size / 2);
         j <= std::min(n - 1, channel + (size - 1) / 2); ++j) {
      f(j);
    }
  };
  for (int64_t row = 0; row < c.shape.rows; ++row) {
    const int64_t at = row * n;
    for (int64_t k = 0; k < n; ++k) {
      double sum = 0;
      for_window(k, [&](int64_t j) { sum += double{x[at + j]} * x[at + j]; });
      exact.s[at + k] = c.window.k + share * sum;
      exact.y[at + k] = x[at + k] * std::pow(exact.s[at + k], -beta);
      exact.dx[at + k] += dy[at + k] * std::pow(exact.s[at + k], -beta);
      for_window(k, [&](int64_t j) {
        exact.dx[at + j] -= dy[at + k] * x[at + k] * beta * std::pow(exact.s[at + k], -beta - 1) *
                            2 * share * x[at + j];
      });
    }
  }
  return exact;
}

}  // namespace

TEST_CASE(
    "responses are divided by a power of their surroundings' sum, and their gradients go through "
    "it",
    "[response_norm]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t misaligned = GENERATE(0, 1);
  for (const Case& c : Cases()) {
    const int64_t size = c.shape.size();
    CAPTURE(c.shape.rows, c.shape.columns, c.window.size, c.window.beta, misaligned);
    const std::vector<float> x = RandomValues(size, 5, c.spread), dy = RandomValues(size, 6);
    const Exact exact = ExactOf(c, x, dy);
    const DeviceArray<float> dev_x(*backend, x, misaligned), dev_dy(*backend, dy, misaligned),
        y(*backend, std::vector<float>(size, NAN), misaligned),
        dx(*backend, std::vector<float>(size, NAN), misaligned);
    backend->response_norm().Forward(c.shape, c.window, dev_x.data(), y.data());
    backend->response_norm().Backward(c.shape, c.window, dev_x.data(), dev_dy.data(), dx.data());
    const std::vector<float> got_y = y.Read(), got_dx = dx.Read();
    // A sum of n positive terms is off by n roundings, and its power by so many times beta.
    const double terms = static_cast<double>(std::min(c.window.size, 2 * c.shape.columns));
    const double relative = kRoundoff * ((terms + 4) * (c.window.beta + 1) + 4);
    for (int64_t i = 0; i < size; ++i) {
      REQUIRE(std::fabs(got_y[i] - exact.y[i]) <= relative * std::fabs(exact.y[i]));
      // No term of the gradient is larger than this: |x| <= sqrt(s size / alpha).
      double largest = 0;
      const int64_t row = i / c.shape.columns * c.shape.columns;
      for (int64_t j = row; j < row + c.shape.columns; ++j) {
        largest = std::max(largest, std::fabs(dy[j]) * std::pow(exact.s[j], -c.window.beta));
      }
      const double terms_size = largest * (1 + 2 * c.window.beta * terms);
      REQUIRE(std::fabs(got_dx[i] - exact.dx[i]) <= 2 * relative * terms_size);
    }
  }
}

TEST_CASE("windows lie as PyTorch's, of an odd size and of an even one", "[response_norm]") {
  // torch.nn.LocalResponseNorm(size, alpha=1, beta=0.75, k=2) of these channels, 1.13, in f64.
  const std::vector<float> x = {1, -2, 3, -4, 5, -6};
  const std::vector<float> of_five = {0.308367835f,  -0.420448208f, 0.43819129f,
                                      -0.422948505f, 0.545122468f,  -0.704270203f};
  const std::vector<float> of_four = {0.41313071f,   -0.55687533f, 0.554406803f,
                                      -0.512048641f, 0.468456326f, -0.606222498f};
  const auto backend = BackendUnderTest(1);
  const DeviceArray<float> dev_x(*backend, x), y(*backend, 6);
  for (const int64_t size : {5, 4}) {
    backend->response_norm().Forward({1, 6}, {size, 1, 0.75, 2}, dev_x.data(), y.data());
    const std::vector<float> got = y.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] == Approx((size == 5 ? of_five : of_four)[i]).epsilon(1e-6));
    }
  }
}

}  // namespace tessera
