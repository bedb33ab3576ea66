// Products against f64 loops. Each entry may be off by (k + 2) roundings of the sum of its k terms'
// magnitudes, whatever the order of summation (Higham: Accuracy and Stability of Numerical
// Algorithms, 3.1). Products of bf16 values are exact in f32, so the same bound holds for them.
#include <cmath>

#include "tests/kernels/conformance/backend_under_test.h"
#include "tests/kernels/conformance/factors.h"

namespace tessera {
namespace {

const std::vector<LinearShape>& Shapes() {
  static const std::vector<LinearShape> shapes = {
      {0, 3, 5},      {4, 0, 5},    {4, 3, 0},    {0, 0, 0},       {1, 1, 1},
      {1, 1, 7},      {1, 9, 1},    {5, 1, 1},    {2, 3, 5},       {7, 17, 33},
      {16, 16, 16},   {1, 300, 40}, {33, 31, 10}, {128, 64, 40},   {128, 40, 64},
      {77, 131, 257}, {3, 1000, 3}, {129, 65, 1}, {128, 512, 256}, {100, 784, 101}};
  return shapes;
}

// out[i][j] = initial(i, j) + sum_k a(i, k) b(k, j); checks `got` entry by entry.
template <typename A, typename B, typename Initial>
void CheckProduct(int64_t m, int64_t n, int64_t terms, const A& a, const B& b,
                  const Initial& initial, const std::vector<float>& got) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double want = initial(i, j);
      double magnitude = std::fabs(want);
      for (int64_t k = 0; k < terms; ++k) {
        want += a(i, k) * b(k, j);
        magnitude += std::fabs(a(i, k) * b(k, j));
      }
      wrong += std::fabs(got[i * n + j] - want) <= (terms + 2) * kRoundoff * magnitude ? 0 : 1;
    }
  }
  REQUIRE(wrong == 0);
}

template <typename T>
void CheckShape(Backend& backend, LinearKernel<T>& linear, const LinearShape& s, int64_t shift) {
  CAPTURE(s.rows, s.inputs, s.outputs, shift);
  const std::vector<T> x = Factor<T>(s.rows * s.inputs, 1), w = Factor<T>(s.outputs * s.inputs, 2),
                       dy = Factor<T>(s.rows * s.outputs, 3);
  const std::vector<float> bias = RandomValues(s.outputs, 4);
  const DeviceArray<T> dev_x(backend, x, shift), dev_w(backend, w, shift),
      dev_dy(backend, dy, shift);
  const DeviceArray<float> dev_bias(backend, bias, shift);
  const std::vector<float> garbage_y(s.rows * s.outputs, NAN), garbage_w(s.outputs * s.inputs, NAN),
      garbage_x(s.rows * s.inputs, NAN);
  DeviceArray<float> y(backend, garbage_y, shift), dw(backend, garbage_w, shift),
      dx(backend, garbage_x, shift);

  const auto x_at = [&](int64_t r, int64_t i) { return Value(x[r * s.inputs + i]); };
  const auto w_at = [&](int64_t o, int64_t i) { return Value(w[o * s.inputs + i]); };
  const auto dy_at = [&](int64_t r, int64_t o) { return Value(dy[r * s.outputs + o]); };
  const auto transposed = [](const auto& f) {
    return [&f](int64_t i, int64_t j) { return f(j, i); };
  };
  const auto nothing = [](int64_t, int64_t) { return 0.0; };
  const auto bias_at = [&](int64_t, int64_t o) { return double{bias[o]}; };

  linear.Forward(s, dev_x.data(), dev_w.data(), nullptr, y.data());
  CheckProduct(s.rows, s.outputs, s.inputs, x_at, transposed(w_at), nothing, y.Read());
  linear.Forward(s, dev_x.data(), dev_w.data(), dev_bias.data(), y.data());
  CheckProduct(s.rows, s.outputs, s.inputs, x_at, transposed(w_at), bias_at, y.Read());
  linear.WeightGradient(s, dev_x.data(), dev_dy.data(), WriteMode::kOverwrite, dw.data());
  CheckProduct(s.outputs, s.inputs, s.rows, transposed(dy_at), x_at, nothing, dw.Read());
  const std::vector<float> before = RandomValues(s.outputs * s.inputs, 5);
  DeviceArray<float> added(backend, before, shift);
  linear.WeightGradient(s, dev_x.data(), dev_dy.data(), WriteMode::kAdd, added.data());
  const auto before_at = [&](int64_t o, int64_t i) { return double{before[o * s.inputs + i]}; };
  CheckProduct(s.outputs, s.inputs, s.rows, transposed(dy_at), x_at, before_at, added.Read());
  linear.InputGradient(s, dev_dy.data(), dev_w.data(), dx.data());
  CheckProduct(s.rows, s.inputs, s.outputs, dy_at, w_at, nothing, dx.Read());
}

template <typename T>
std::vector<float> AllProducts(LinearKernel<T>& linear, Backend& backend, const LinearShape& s) {
  const DeviceArray<T> x(backend, Factor<T>(s.rows * s.inputs, 1)),
      w(backend, Factor<T>(s.outputs * s.inputs, 2)), dy(backend, Factor<T>(s.rows * s.outputs, 3));
  DeviceArray<float> y(backend, s.rows * s.outputs), dw(backend, s.outputs * s.inputs),
      dx(backend, s.rows * s.inputs);
  linear.Forward(s, x.data(), w.data(), nullptr, y.data());
  linear.WeightGradient(s, x.data(), dy.data(), WriteMode::kOverwrite, dw.data());
  linear.WeightGradient(s, x.data(), dy.data(), WriteMode::kAdd, dw.data());
  linear.InputGradient(s, dy.data(), w.data(), dx.data());
  std::vector<float> all = y.Read();
  for (const std::vector<float>& more : {dw.Read(), dx.Read()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

TEST_CASE("f32 products equal f64 loops within their roundings", "[linear]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const LinearShape& shape : Shapes()) CheckShape(*backend, backend->linear(), shape, 0);
  for (const LinearShape& shape : Shapes()) CheckShape(*backend, backend->linear(), shape, 1);
}

TEST_CASE("bf16 products equal f64 loops over the same bf16 values within f32 roundings",
          "[linear]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const auto linear = backend->linear_bf16();
  if (!linear.ok()) {
    CHECK(linear.status().code() == absl::StatusCode::kFailedPrecondition);
    return;
  }
  for (const LinearShape& shape : Shapes()) CheckShape(*backend, **linear, shape, 0);
  for (const LinearShape& shape : Shapes()) CheckShape(*backend, **linear, shape, 1);
}

// A factor that has no more than tf32's 10 bits of mantissa is not rounded, so that the bound of f32
// holds; one that has more moves by 2^-11 of itself at most.
TEST_CASE("tf32 products round their factors and nothing else", "[linear]") {
  const auto backend = BackendUnderTest(1);
  const auto linear = backend->linear_tf32();
  if (!linear.ok()) {
    CHECK(linear.status().code() == absl::StatusCode::kFailedPrecondition);
    return;
  }
  const LinearShape s{33, 130, 65};
  for (const bool rounded : {true, false}) {
    std::vector<float> x = RandomValues(s.rows * s.inputs, 1),
                       w = RandomValues(s.outputs * s.inputs, 2);
    for (std::vector<float>* const values : {&x, &w}) {
      for (float& value : *values) value = rounded ? Widen(RoundToBf16(value)) : value;
    }
    const DeviceArray<float> dev_x(*backend, x), dev_w(*backend, w);
    const DeviceArray<float> y(*backend, s.rows * s.outputs);
    (*linear)->Forward(s, dev_x.data(), dev_w.data(), nullptr, y.data());
    const std::vector<float> got = y.Read();
    const double factors = rounded ? 0.0 : 2 * 0x1p-11 + 0x1p-22;
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t o = 0; o < s.outputs; ++o) {
        double want = 0, magnitude = 0;
        for (int64_t i = 0; i < s.inputs; ++i) {
          const double term = double{x[r * s.inputs + i]} * w[o * s.inputs + i];
          want += term;
          magnitude += std::fabs(term);
        }
        REQUIRE(std::fabs(got[r * s.outputs + o] - want) <=
                ((s.inputs + 2) * kRoundoff + factors) * magnitude);
      }
    }
  }
}

TEST_CASE("products have the same bits in every run of the same options", "[linear][determinism]") {
  const int threads = GENERATE(from_range(ThreadsUnderTest()));
  const LinearShape shape{128, 700, 300};
  const auto first = BackendUnderTest(threads);
  const auto second = BackendUnderTest(threads);
  const std::vector<float> want = AllProducts(first->linear(), *first, shape);
  CHECK(AllProducts(first->linear(), *first, shape) == want);
  CHECK(AllProducts(second->linear(), *second, shape) == want);
}

TEST_CASE("one kernel serves changing shapes and addresses", "[linear]") {
  const auto backend = BackendUnderTest(1);
  for (int round = 0; round < 2; ++round) {
    for (int64_t rows = 20; rows > 0; rows -= 3) {
      CheckShape(*backend, backend->linear(), {rows, 24, 12}, round);
    }
  }
}

}  // namespace tessera
