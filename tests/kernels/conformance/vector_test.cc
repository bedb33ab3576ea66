#include <array>
#include <cmath>
#include <limits>

#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {

TEST_CASE("axpy and add add and subtract subtracts, at every length", "[vector]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  // Each array by itself, too.
  const auto [x_shift, y_shift, out_shift] =
      GENERATE(std::array<int64_t, 3>{0, 0, 0}, std::array<int64_t, 3>{1, 0, 0},
               std::array<int64_t, 3>{0, 2, 0}, std::array<int64_t, 3>{0, 0, 3},
               std::array<int64_t, 3>{1, 2, 3});
  for (const int64_t n : Sizes()) {
    CAPTURE(n, x_shift, y_shift, out_shift);
    const std::vector<float> x = RandomValues(n, 1), y = RandomValues(n, 2);
    const DeviceArray<float> dev_x(*backend, x, x_shift), dev_y(*backend, y, y_shift),
        difference(*backend, n, out_shift), total(*backend, n, out_shift);
    backend->vector().Add(n, dev_x.data(), dev_y.data(), total.data());
    const std::vector<float> got_total = total.Read();
    for (int64_t i = 0; i < n; ++i) REQUIRE(got_total[i] == x[i] + y[i]);
    backend->vector().Add(n, total.data(), total.data(), total.data());
    const std::vector<float> doubled = total.Read();
    for (int64_t i = 0; i < n; ++i) REQUIRE(doubled[i] == 2 * (x[i] + y[i]));
    backend->vector().Subtract(n, dev_x.data(), dev_y.data(), difference.data());
    backend->vector().Axpy(n, -0.37f, dev_x.data(), dev_y.data());
    const std::vector<float> sum = dev_y.Read(), got = difference.Read();
    for (int64_t i = 0; i < n; ++i) {
      REQUIRE(got[i] == x[i] - y[i]);
      const double product = double{-0.37f} * x[i];
      REQUIRE(std::fabs(sum[i] - (y[i] + product)) <=
              2 * kRoundoff * (std::fabs(y[i]) + std::fabs(product)));
    }
    backend->vector().Subtract(n, dev_x.data(), dev_x.data(), dev_x.data());
    REQUIRE(dev_x.Read() == std::vector<float>(n, 0.0f));
  }
}

TEST_CASE("a blend is the sum of both arrays, each times its number, at every length", "[vector]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t shift = GENERATE(0, 1);
  for (const int64_t n : Sizes()) {
    CAPTURE(n, shift);
    const std::vector<float> x = RandomValues(n, 1), y = RandomValues(n, 2);
    const DeviceArray<float> dev_x(*backend, x, shift), dev_y(*backend, y, 2 * shift);
    backend->vector().Blend(n, -0.37f, dev_x.data(), 0.9f, dev_y.data());
    const std::vector<float> got = dev_y.Read();
    for (int64_t i = 0; i < n; ++i) {
      const double a = double{-0.37f} * x[i], b = double{0.9f} * y[i];
      REQUIRE(std::fabs(got[i] - (a + b)) <= 2 * kRoundoff * (std::fabs(a) + std::fabs(b)));
    }
  }
}

TEST_CASE("a norm limits what an array is multiplied by, in the same bits for any threads",
          "[vector]") {
  constexpr float kNone = std::numeric_limits<float>::infinity();
  const int64_t shift = GENERATE(0, 1);
  std::vector<int64_t> sizes = Sizes();
  sizes.insert(sizes.end(), {65535, 65536, 65537, 300001});
  for (const int64_t n : sizes) {
    CAPTURE(n, shift);
    const std::vector<float> x = RandomValues(n, 1, 1, 3);
    double squares = 0;
    for (const float value : x) squares += double{value} * value;
    const double norm = std::sqrt(squares);
    const NormLimit limits[] = {{0.5f, 1e-6f, 1}, {1, 1e-7f, kNone}, {1e30f, 1e-6f, 1}};
    for (const NormLimit& limit : limits) {
      const double wanted = std::min<double>(limit.factor_max, limit.most / (norm + limit.epsilon));
      std::vector<float> first;
      for (const int threads : ThreadsUnderTest()) {
        const auto backend = BackendUnderTest(threads);
        const DeviceArray<float> dev_x(*backend, x, shift), factor(*backend, 1);
        backend->vector().NormFactor(n, dev_x.data(), limit, factor.data());
        const float got = factor.Read()[0];
        REQUIRE(std::fabs(got - wanted) <= 2 * kRoundoff * wanted);
        REQUIRE(dev_x.Read() == x);
        backend->vector().ScaleBy(n, factor.data(), dev_x.data());
        const std::vector<float> scaled = dev_x.Read();
        for (int64_t i = 0; i < n; ++i) REQUIRE(scaled[i] == x[i] * got);
        if (first.empty()) first = scaled;
        REQUIRE(scaled == first);
      }
    }
  }
}

TEST_CASE("the norm of what is no number limits to no number", "[vector]") {
  const auto backend = BackendUnderTest(1);
  const DeviceArray<float> x(*backend, {1, NAN, 2}), factor(*backend, 1);
  backend->vector().NormFactor(3, x.data(), {1, 1e-6f, 1}, factor.data());
  CHECK(std::isnan(factor.Read()[0]));
  const DeviceArray<float> endless(*backend, {1, INFINITY, 2});
  backend->vector().NormFactor(3, endless.data(), {1, 1e-6f, 1}, factor.data());
  CHECK(factor.Read()[0] == 0);
  // Nothing is as long as nothing.
  backend->vector().NormFactor(0, x.data(), {1, 0.5f, 1}, factor.data());
  CHECK(factor.Read()[0] == 1);
}

TEST_CASE("column sums are exact where f32 sums would drift", "[vector]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const MatrixShape& s :
       {MatrixShape{1, 1}, {128, 40}, {3, 257}, {5000, 3}, {20700, 2}, {100, 600}}) {
    CAPTURE(s.rows, s.columns);
    const std::vector<float> x = RandomValues(s.size(), 1, 1, 1000);
    const DeviceArray<float> dev_x(*backend, x, 1), sums(*backend, s.columns, 1);
    backend->vector().ColumnSums(s, dev_x.data(), WriteMode::kOverwrite, sums.data());
    const std::vector<float> got = sums.Read();
    for (int64_t c = 0; c < s.columns; ++c) {
      double want = 0;
      for (int64_t r = 0; r < s.rows; ++r) want += x[r * s.columns + c];
      REQUIRE(std::fabs(got[c] - want) <= 1.01 * kRoundoff * std::fabs(want));
    }
    // On top of what is there, still with one rounding.
    const std::vector<float> before = RandomValues(s.columns, 2, 1e4f);
    const DeviceArray<float> added(*backend, before, 1);
    backend->vector().ColumnSums(s, dev_x.data(), WriteMode::kAdd, added.data());
    const std::vector<float> got_added = added.Read();
    for (int64_t c = 0; c < s.columns; ++c) {
      double want = before[c], size = std::fabs(want);
      for (int64_t r = 0; r < s.rows; ++r) {
        want += x[r * s.columns + c];
        size += std::fabs(x[r * s.columns + c]);
      }
      REQUIRE(std::fabs(got_added[c] - want) <=
              1.01 * kRoundoff * std::fabs(want) + s.rows * 0x1p-52 * size);
    }
  }
  const DeviceArray<float> none(*backend, 0), sums(*backend, {NAN, NAN});
  backend->vector().ColumnSums({0, 2}, none.data(), WriteMode::kOverwrite, sums.data());
  CHECK(sums.Read() == std::vector<float>{0, 0});
  const DeviceArray<float> kept(*backend, {3, -4});
  backend->vector().ColumnSums({0, 2}, none.data(), WriteMode::kAdd, kept.data());
  CHECK(kept.Read() == std::vector<float>{3, -4});
}

TEST_CASE("transposed matrices are turned round, each by itself", "[vector]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const auto check = [&](int64_t count, const MatrixShape& s, int64_t shift) {
    CAPTURE(count, s.rows, s.columns, shift);
    std::vector<float> x(count * s.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    const DeviceArray<float> from(*backend, x, shift),
        to(*backend, std::vector<float>(x.size(), NAN), shift);
    backend->vector().Transpose(count, s, from.data(), to.data());
    const std::vector<float> got = to.Read();
    int64_t wrong = 0;
    for (int64_t m = 0; m < count; ++m) {
      for (int64_t r = 0; r < s.rows; ++r) {
        for (int64_t c = 0; c < s.columns; ++c) {
          wrong +=
              got[m * s.size() + c * s.rows + r] == x[m * s.size() + r * s.columns + c] ? 0 : 1;
        }
      }
    }
    REQUIRE(wrong == 0);
  };
  for (const int64_t shift : {0, 1}) {
    check(0, {3, 5}, shift);
    check(3, {0, 5}, shift);
    check(3, {5, 0}, shift);
    for (const int64_t rows : {1, 3, 16, 31, 32, 33, 65}) {
      for (const int64_t columns : {1, 7, 32, 63, 100}) check(2, {rows, columns}, shift);
    }
    check(700, {3, 4}, shift);
    check(5, {300, 257}, shift);
  }
}

TEST_CASE("a block is copied between matrices, and what is around it stays", "[vector]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const auto check = [&](const MatrixShape& s, int64_t x_stride, int64_t y_stride) {
    CAPTURE(s.rows, s.columns, x_stride, y_stride);
    std::vector<float> x(s.rows * x_stride), y(s.rows * y_stride, -1.0f);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    const DeviceArray<float> from(*backend, x), to(*backend, y);
    backend->vector().CopyBlock(s, from.data(), x_stride, to.data(), y_stride);
    const std::vector<float> got = to.Read();
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t c = 0; c < s.columns; ++c) y[r * y_stride + c] = x[r * x_stride + c];
    }
    REQUIRE(got == y);
  };
  check({0, 3}, 3, 4);
  check({3, 0}, 3, 4);
  for (const int64_t rows : {1, 31, 32, 33, 100}) {
    for (const int64_t columns : {1, 7, 32, 33, 65}) {
      check({rows, columns}, columns, columns);
      check({rows, columns}, columns + 5, columns);
      check({rows, columns}, columns, columns + 3);
    }
  }
  check({20000, 2}, 3, 5);
}

TEST_CASE("rounding to bf16 is to nearest, ties to even, for every bf16 value and its surroundings",
          "[vector][bf16]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  std::vector<float> values;
  std::vector<uint16_t> want;
  const auto expect = [&](float value, uint32_t bits) {
    values.push_back(value);
    want.push_back(static_cast<uint16_t>(bits));
  };
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float here = Widen({static_cast<uint16_t>(bits)});
    uint32_t middle_bits = bits << 16 | 0x8000;
    float middle;
    std::memcpy(&middle, &middle_bits, sizeof(middle));
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      expect(s * here, bits | sign);
      expect(s * middle, even | sign);
      expect(s * std::nextafter(middle, 0.0f), bits | sign);
      expect(s * std::nextafter(middle, INFINITY), (bits + 1) | sign);
    }
  }
  expect(INFINITY, 0x7f80);
  expect(-INFINITY, 0xff80);
  expect(std::numeric_limits<float>::max(), 0x7f80);
  const int64_t n = static_cast<int64_t>(values.size());
  const DeviceArray<float> from(*backend, values, 1);
  const DeviceArray<Bf16> to(*backend, n, 1);
  backend->vector().Round(n, from.data(), to.data());
  const std::vector<Bf16> got = to.Read();
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) wrong += got[i].bits == want[i] ? 0 : 1;
  CHECK(wrong == 0);
  const DeviceArray<float> back(*backend, n, 1);
  backend->vector().Widen(n, to.data(), back.data());
  const std::vector<float> widened = back.Read();
  for (int64_t i = 0; i < n; i += 4) wrong += widened[i] == values[i] || i >= n - 3 ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("a NaN stays a NaN in bf16, whatever its payload", "[vector][bf16]") {
  const auto backend = BackendUnderTest(1);
  std::vector<float> values;
  for (const uint32_t bits :
       {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u, 0x7f80ffffu}) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    values.push_back(value);
  }
  const DeviceArray<float> from(*backend, values);
  const DeviceArray<Bf16> to(*backend, values.size());
  backend->vector().Round(values.size(), from.data(), to.data());
  for (const Bf16 got : to.Read()) CHECK(std::isnan(Widen(got)));
}

TEST_CASE("conversions cover every length", "[vector][bf16]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t misaligned = GENERATE(0, 1);
  for (const int64_t n : Sizes()) {
    CAPTURE(n);
    const std::vector<float> x = RandomValues(n, 1);
    const DeviceArray<float> from(*backend, x, misaligned), back(*backend, n, misaligned);
    const DeviceArray<Bf16> rounded(*backend, n, misaligned);
    backend->vector().Round(n, from.data(), rounded.data());
    backend->vector().Widen(n, rounded.data(), back.data());
    (void)rounded.Read();
    const std::vector<float> got = back.Read();
    for (int64_t i = 0; i < n; ++i) {
      REQUIRE(std::fabs(got[i] - x[i]) <= kBf16RelativeError * std::fabs(x[i]));
    }
  }
}

}  // namespace tessera
