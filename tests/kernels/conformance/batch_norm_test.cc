// Batch norm against f64 loops. Tolerances follow the roundings: the mean is rounded once, so x -
// mean is off by a rounding of |x| + |mean|, and everything after it by a few roundings of its
// terms.
#include <cmath>
#include <utility>

#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

constexpr double kEpsilon = 1e-5;

struct Case {
  MatrixShape shape;
  float spread = 1;
  float center = 0;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{1, 1}},          {{1, 300}},       {{2, 17}},        {{3, 1}},     {{128, 256}},
      {{128, 257}},      {{77, 40}},       {{2048, 65}},     {{300, 600}}, {{500, 33}, 1, 1e4},
      {{64, 33}, 1e-3f}, {{64, 33}, 0, 3}, {{128, 20}, 1e4}, {{1700, 36}}, {{20700, 2}}};
  return cases;
}

struct Exact {
  std::vector<double> mean, inverse_sigma;
};

Exact StatisticsOf(const MatrixShape& s, const std::vector<float>& x) {
  Exact exact{std::vector<double>(s.columns), std::vector<double>(s.columns)};
  for (int64_t c = 0; c < s.columns; ++c) {
    double variance = 0;
    for (int64_t r = 0; r < s.rows; ++r) exact.mean[c] += double{x[r * s.columns + c]} / s.rows;
    for (int64_t r = 0; r < s.rows; ++r) {
      variance += std::pow(x[r * s.columns + c] - exact.mean[c], 2) / s.rows;
    }
    exact.inverse_sigma[c] = 1 / std::sqrt(variance + kEpsilon);
  }
  return exact;
}

}  // namespace

TEST_CASE("statistics are the mean and the biased deviation, far from zero too", "[batch_norm]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const Case& c : Cases()) {
    CAPTURE(c.shape.rows, c.shape.columns, c.spread, c.center);
    const std::vector<float> x = RandomValues(c.shape.size(), 5, c.spread, c.center);
    const DeviceArray<float> dev_x(*backend, x, 1);
    DeviceArray<float> mean(*backend, c.shape.columns, 1),
        inverse_sigma(*backend, c.shape.columns, 1);
    backend->batch_norm().Statistics(c.shape, kEpsilon, dev_x.data(), mean.data(),
                                     inverse_sigma.data());
    const Exact want = StatisticsOf(c.shape, x);
    const std::vector<float> got_mean = mean.Read(), got_inverse_sigma = inverse_sigma.Read();
    for (int64_t i = 0; i < c.shape.columns; ++i) {
      REQUIRE(std::fabs(got_mean[i] - want.mean[i]) <=
              2 * kRoundoff * (std::fabs(want.mean[i]) + 1e-6));
      REQUIRE(std::fabs(got_inverse_sigma[i] - want.inverse_sigma[i]) <=
              4 * kRoundoff * want.inverse_sigma[i]);
    }
  }
}

TEST_CASE("statistics of a sample in parts are those of all its rows", "[batch_norm]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const Case& c : Cases()) {
    const int64_t n = c.shape.columns;
    const std::vector<float> x = RandomValues(c.shape.size(), 5, c.spread, c.center);
    const Exact want = StatisticsOf(c.shape, x);
    std::vector<float> first;
    for (const int64_t part : {c.shape.rows, int64_t{1}, int64_t{37}}) {
      if (part > c.shape.rows || c.shape.rows / part > 600) continue;
      CAPTURE(c.shape.rows, n, c.spread, c.center, part);
      const DeviceArray<float> dev_x(*backend, x, 1);
      DeviceArray<float> mean(*backend, n, 1), inverse_sigma(*backend, n, 1);
      // What the first part finds there is nothing to it.
      const DeviceArray<double> sums(*backend, std::vector<double>(3 * n, 77.0), 0);
      for (int64_t row = 0; row < c.shape.rows; row += part) {
        backend->batch_norm().AddToSums({std::min(part, c.shape.rows - row), n}, row == 0,
                                        dev_x.data() + row * n, sums.data());
      }
      backend->batch_norm().StatisticsOfSums(c.shape, kEpsilon, sums.data(), mean.data(),
                                             inverse_sigma.data());
      std::vector<float> got = mean.Read();
      const std::vector<float> got_inverse_sigma = inverse_sigma.Read();
      for (int64_t i = 0; i < n; ++i) {
        REQUIRE(std::fabs(got[i] - want.mean[i]) <=
                2 * kRoundoff * (std::fabs(want.mean[i]) + 1e-6));
        REQUIRE(std::fabs(got_inverse_sigma[i] - want.inverse_sigma[i]) <=
                4 * kRoundoff * want.inverse_sigma[i]);
      }
      got.insert(got.end(), got_inverse_sigma.begin(), got_inverse_sigma.end());
      if (first.empty()) first = got;
      // On a GPU sums are cut as their part is, and rounded to f32 in the end.
      for (size_t i = 0; i < got.size(); ++i) {
        REQUIRE(std::fabs(got[i] - first[i]) <=
                (backend->memory().host_addressable() ? 0 : 2 * kRoundoff * std::fabs(first[i])));
      }
    }
  }
}

TEST_CASE("normalising applies the given statistics, scale, shift and relu", "[batch_norm]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const bool scales = GENERATE(false, true), shifts = GENERATE(false, true),
             relu = GENERATE(false, true), in_place = GENERATE(false, true);
  const auto [misaligned, y_misaligned] =
      GENERATE(std::pair(0, 0), std::pair(1, 0), std::pair(0, 1), std::pair(1, 1));
  for (const Case& c : Sampled(Cases())) {
    CAPTURE(c.shape.rows, c.shape.columns, c.spread, c.center, scales, shifts, relu, in_place);
    const int64_t n = c.shape.columns;
    const std::vector<float> x = RandomValues(c.shape.size(), 5, c.spread, c.center),
                             mean = RandomValues(n, 6, 1, c.center),
                             inverse_sigma = RandomValues(n, 7, 0.1f, 1),
                             scale = RandomValues(n, 8), shift = RandomValues(n, 9);
    const DeviceArray<float> dev_mean(*backend, mean, misaligned),
        dev_inverse_sigma(*backend, inverse_sigma, misaligned),
        dev_scale(*backend, scale, misaligned), dev_shift(*backend, shift, misaligned),
        dev_x(*backend, x, misaligned);
    const DeviceArray<float> y(*backend, c.shape.size(), y_misaligned);
    const BatchNormKernel::Affine with{scales ? dev_scale.data() : nullptr,
                                       shifts ? dev_shift.data() : nullptr};
    float* out = in_place ? dev_x.data() : y.data();
    backend->batch_norm().Normalize(c.shape, dev_x.data(), dev_mean.data(),
                                    dev_inverse_sigma.data(), with, relu, out);
    const std::vector<float> got = in_place ? dev_x.Read() : y.Read();
    for (int64_t i = 0; i < c.shape.size(); ++i) {
      const int64_t k = i % n;
      const double factor = double{inverse_sigma[k]} * (scales ? scale[k] : 1.0),
                   offset = shifts ? shift[k] : 0.0;
      double want = (double{x[i]} - mean[k]) * factor + offset;
      if (relu) want = std::max(want, 0.0);
      const double size =
          (std::fabs(x[i]) + std::fabs(mean[k])) * std::fabs(factor) + std::fabs(offset);
      REQUIRE(std::fabs(got[i] - want) <= 5 * kRoundoff * size);
    }
  }
}

TEST_CASE("the gradient goes through the statistics and stops at relu's zeros", "[batch_norm]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const bool affine = GENERATE(false, true), relu = GENERATE(false, true),
             in_place = GENERATE(false, true);
  const auto [misaligned, x_misaligned] =
      GENERATE(std::pair(0, 0), std::pair(0, 1), std::pair(1, 1));
  for (const Case& c : Sampled(Cases())) {
    CAPTURE(c.shape.rows, c.shape.columns, c.spread, c.center, affine, relu, in_place);
    const int64_t n = c.shape.columns, rows = c.shape.rows;
    const std::vector<float> x = RandomValues(c.shape.size(), 5, c.spread, c.center),
                             dy = RandomValues(c.shape.size(), 6),
                             y = RandomValues(c.shape.size(), 7), scale = RandomValues(n, 8);
    const Exact exact = StatisticsOf(c.shape, x);
    const DeviceArray<float> dev_x(*backend, x, x_misaligned), dev_y(*backend, y, misaligned),
        dev_dy(*backend, dy, misaligned), dev_scale(*backend, scale, misaligned),
        mean(*backend, n, misaligned), inverse_sigma(*backend, n, misaligned),
        dx(*backend, c.shape.size(), misaligned), dscale(*backend, n, misaligned),
        dshift(*backend, n, misaligned);
    backend->batch_norm().Statistics(c.shape, kEpsilon, dev_x.data(), mean.data(),
                                     inverse_sigma.data());
    BatchNormKernel::BackwardInput in;
    in.x = dev_x.data();
    in.mean = mean.data();
    in.inverse_sigma = inverse_sigma.data();
    in.scale = affine ? dev_scale.data() : nullptr;
    in.y = relu ? dev_y.data() : nullptr;
    in.dy = dev_dy.data();
    const std::vector<float> before = RandomValues(n, 10);
    const DeviceArray<float> added_dscale(*backend, before, misaligned),
        added_dshift(*backend, before, misaligned);
    backend->batch_norm().Backward(c.shape, in, WriteMode::kAdd, added_dscale.data(),
                                   added_dshift.data(), nullptr);
    backend->batch_norm().Backward(c.shape, in, WriteMode::kOverwrite, dscale.data(), dshift.data(),
                                   in_place ? dev_dy.data() : dx.data());
    const std::vector<float> got_added_dscale = added_dscale.Read(),
                             got_added_dshift = added_dshift.Read();
    const std::vector<float> got = in_place ? dev_dy.Read() : dx.Read(), got_dscale = dscale.Read(),
                             got_dshift = dshift.Read();
    for (int64_t k = 0; k < n; ++k) {
      const double is = exact.inverse_sigma[k], factor = is * (affine ? scale[k] : 1.0);
      const auto g = [&](int64_t r) {
        return relu && y[r * n + k] <= 0 ? 0.0 : double{dy[r * n + k]};
      };
      const auto hat = [&](int64_t r) { return (x[r * n + k] - exact.mean[k]) * is; };
      const auto hat_error = [&](int64_t r) {
        return 6 * kRoundoff * (std::fabs(x[r * n + k]) + std::fabs(exact.mean[k])) * is;
      };
      double sum = 0, sum_hat = 0, size = 0, sum_hat_error = 0;
      for (int64_t r = 0; r < rows; ++r) {
        sum += g(r);
        sum_hat += g(r) * hat(r);
        size += std::fabs(g(r));
        sum_hat_error += std::fabs(g(r)) * (hat_error(r) + kRoundoff * std::fabs(hat(r)));
      }
      REQUIRE(std::fabs(got_dshift[k] - sum) <= 2 * kRoundoff * size);
      REQUIRE(std::fabs(got_dscale[k] - sum_hat) <=
              2 * kRoundoff * std::fabs(sum_hat) + 2 * sum_hat_error);
      // A rounding of each: of what was there with the sum, and of the sum alone, which is at hand.
      const auto is_added = [&](float added, float alone) {
        const double want = double{before[k]} + alone;
        return std::fabs(added - want) <= 1.01 * kRoundoff * (std::fabs(want) + std::fabs(alone));
      };
      REQUIRE(is_added(got_added_dshift[k], got_dshift[k]));
      REQUIRE(is_added(got_added_dscale[k], got_dscale[k]));
      for (int64_t r = 0; r < rows; ++r) {
        const double want = factor * (g(r) - sum / rows - hat(r) * sum_hat / rows);
        const double terms =
            std::fabs(g(r)) + std::fabs(sum / rows) + std::fabs(hat(r) * sum_hat / rows);
        const double tolerance =
            std::fabs(factor) * (10 * kRoundoff * terms + hat_error(r) * std::fabs(sum_hat / rows) +
                                 2 * std::fabs(hat(r)) * sum_hat_error / rows);
        REQUIRE(std::fabs(got[r * n + k] - want) <= tolerance);
      }
    }
  }
}

TEST_CASE("a single row is normalised to the shift and has no gradient, and no NaN",
          "[batch_norm]") {
  const auto backend = BackendUnderTest(1);
  const MatrixShape shape{1, 5};
  const DeviceArray<float> x(*backend, {1, -2, 3e8f, 0, 1e-30f}),
      dy(*backend, std::vector<float>(5, 1.0f)), mean(*backend, 5), inverse_sigma(*backend, 5),
      shift(*backend, {1, 2, 3, 4, 5}), y(*backend, 5), dx(*backend, 5);
  backend->batch_norm().Statistics(shape, kEpsilon, x.data(), mean.data(), inverse_sigma.data());
  backend->batch_norm().Normalize(shape, x.data(), mean.data(), inverse_sigma.data(),
                                  {nullptr, shift.data()}, false, y.data());
  CHECK(y.Read() == std::vector<float>{1, 2, 3, 4, 5});
  backend->batch_norm().Backward(
      shape, {x.data(), mean.data(), inverse_sigma.data(), nullptr, nullptr, dy.data()},
      WriteMode::kOverwrite, nullptr, nullptr, dx.data());
  CHECK(dx.Read() == std::vector<float>(5, 0.0f));
}

TEST_CASE("no rows, no columns and unwanted gradients are no error", "[batch_norm]") {
  const auto backend = BackendUnderTest(1);
  const DeviceArray<float> none(*backend, 0), mean(*backend, {NAN, NAN}),
      inverse_sigma(*backend, {NAN, NAN}), dscale(*backend, {NAN, NAN}), one(*backend, {1, 1}),
      dy(*backend, {2, 3});
  backend->batch_norm().Statistics({0, 2}, 0.25, none.data(), mean.data(), inverse_sigma.data());
  CHECK(mean.Read() == std::vector<float>{0, 0});
  CHECK(inverse_sigma.Read() == std::vector<float>{2, 2});
  backend->batch_norm().Backward(
      {0, 2}, {none.data(), mean.data(), inverse_sigma.data(), nullptr, nullptr, none.data()},
      WriteMode::kOverwrite, dscale.data(), nullptr, none.data());
  CHECK(dscale.Read() == std::vector<float>{0, 0});
  const DeviceArray<float> kept(*backend, {3, -4});
  backend->batch_norm().Backward(
      {0, 2}, {none.data(), mean.data(), inverse_sigma.data(), nullptr, nullptr, none.data()},
      WriteMode::kAdd, kept.data(), nullptr, none.data());
  CHECK(kept.Read() == std::vector<float>{3, -4});
  backend->batch_norm().Statistics({4, 0}, 0.25, none.data(), none.data(), none.data());
  backend->batch_norm().Backward(
      {1, 2}, {one.data(), mean.data(), inverse_sigma.data(), nullptr, nullptr, dy.data()},
      WriteMode::kOverwrite, nullptr, nullptr, nullptr);
  CHECK(dy.Read() == std::vector<float>{2, 3});
}

TEST_CASE("a NaN in one column passes relu and stays in its column", "[batch_norm]") {
  const auto backend = BackendUnderTest(1);
  const DeviceArray<float> x(*backend, {1, NAN, 2, 1}), mean(*backend, 2),
      inverse_sigma(*backend, 2), y(*backend, 4);
  backend->batch_norm().Statistics({2, 2}, kEpsilon, x.data(), mean.data(), inverse_sigma.data());
  backend->batch_norm().Normalize({2, 2}, x.data(), mean.data(), inverse_sigma.data(), {}, true,
                                  y.data());
  const std::vector<float> got = y.Read();
  CHECK(got[0] == 0);
  CHECK(got[2] > 0.99f);
  CHECK(std::isnan(got[1]));
  CHECK(std::isnan(got[3]));
}

}  // namespace tessera
