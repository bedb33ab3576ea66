// Normalisation in groups against f64 loops. Tolerances follow the roundings, as in batch_norm_test.cc.
#include <cmath>
#include <utility>

#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

constexpr double kEpsilon = 1e-5;

struct Case {
  GroupsShape shape;
  float spread = 1;
  float center = 0;
};

// Rows, positions, channels, groups: rows of one value, groups of one channel and of all, blocks of channels that end
// within a group and with it, some that are worth several threads, and as many rows as the places of sequences make.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{0, 1, 4, 2}},         {{1, 1, 1, 1}},        {{3, 1, 5, 1}},       {{2, 1, 255, 1}},
      {{5, 1, 1000, 1}},      {{33, 1, 768, 1}},     {{4, 6, 1, 1}},       {{3, 4, 6, 6}},
      {{3, 5, 6, 3}},         {{7, 9, 64, 32}},      {{2, 49, 260, 13}},   {{2, 3, 514, 257}},
      {{2, 7, 600, 2}},       {{3, 2, 780, 3}},      {{9, 64, 96, 8}},     {{4, 3, 12, 4}, 1, 1e4},
      {{4, 3, 12, 4}, 1e-3f}, {{4, 1, 30, 1}, 0, 3}, {{4, 5, 20, 2}, 1e4}, {{1700, 1, 36, 1}},
      {{9000, 1, 2, 1}}};
  return cases;
}

// Those, and some of random shapes.
std::vector<Case> AllCases() {
  std::vector<Case> cases = Cases();
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) {
    const int64_t groups = 1 + random() % 7, length = 1 + random() % (i % 4 == 0 ? 300 : 20);
    cases.push_back({{static_cast<int64_t>(1 + random() % 6),
                      static_cast<int64_t>(1 + random() % 9), groups * length, groups}});
  }
  return cases;
}

int64_t GroupAt(const GroupsShape& s, int64_t i) {
  return i / s.row_size() * s.groups + i % s.channels / s.group_channels();
}

struct Exact {
  std::vector<double> mean, inverse_sigma;
};

Exact StatisticsOf(const GroupsShape& s, const std::vector<float>& x) {
  const auto groups = static_cast<size_t>(s.rows * s.groups);
  const double share = 1.0 / static_cast<double>(s.positions * s.group_channels());
  Exact exact{std::vector<double>(groups), std::vector<double>(groups)};
  std::vector<double> variance(groups);
  for (int64_t i = 0; i < s.size(); ++i) exact.mean[GroupAt(s, i)] += x[i] * share;
  for (int64_t i = 0; i < s.size(); ++i) {
    variance[GroupAt(s, i)] += std::pow(x[i] - exact.mean[GroupAt(s, i)], 2) * share;
  }
  for (size_t g = 0; g < groups; ++g) {
    exact.inverse_sigma[g] = 1 / std::sqrt(variance[g] + kEpsilon);
  }
  return exact;
}

}  // namespace

TEST_CASE("values are normalised by the statistics of their group of their row", "[group_norm]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const bool scales = GENERATE(false, true), in_place = GENERATE(false, true);
  const int64_t misaligned = GENERATE(0, 1);
  for (const Case& c : Sampled(AllCases())) {
    const GroupsShape& s = c.shape;
    CAPTURE(s.rows, s.positions, s.channels, s.groups, c.spread, c.center, scales, in_place);
    const std::vector<float> x = RandomValues(s.size(), 5, c.spread, c.center),
                             scale = RandomValues(s.channels, 8),
                             shift = RandomValues(s.channels, 9);
    const Exact exact = StatisticsOf(s, x);
    const DeviceArray<float> dev_x(*backend, x, misaligned), y(*backend, s.size(), misaligned),
        dev_scale(*backend, scale, misaligned), dev_shift(*backend, shift, misaligned),
        mean(*backend, s.rows * s.groups, misaligned),
        inverse_sigma(*backend, s.rows * s.groups, misaligned);
    const GroupNormKernel::Affine affine{scales ? dev_scale.data() : nullptr,
                                         scales ? dev_shift.data() : nullptr};
    backend->group_norm().Forward(s, kEpsilon, dev_x.data(), affine, mean.data(),
                                  inverse_sigma.data(), in_place ? dev_x.data() : y.data());
    const std::vector<float> got = in_place ? dev_x.Read() : y.Read(), got_mean = mean.Read(),
                             got_inverse_sigma = inverse_sigma.Read();
    for (size_t g = 0; g < got_mean.size(); ++g) {
      REQUIRE(std::fabs(got_mean[g] - exact.mean[g]) <=
              2 * kRoundoff * (std::fabs(exact.mean[g]) + 1e-6));
      REQUIRE(std::fabs(got_inverse_sigma[g] - exact.inverse_sigma[g]) <=
              4 * kRoundoff * exact.inverse_sigma[g]);
    }
    for (int64_t i = 0; i < s.size(); ++i) {
      const int64_t g = GroupAt(s, i), k = i % s.channels;
      const double factor = exact.inverse_sigma[g] * (scales ? scale[k] : 1.0);
      const double offset = scales ? shift[k] : 0.0;
      const double want = (double{x[i]} - exact.mean[g]) * factor + offset;
      const double size =
          (std::fabs(x[i]) + std::fabs(exact.mean[g])) * std::fabs(factor) + std::fabs(offset);
      REQUIRE(std::fabs(got[i] - want) <= 8 * kRoundoff * size);
    }
  }
}

TEST_CASE("the gradient of a group goes through its statistics", "[group_norm]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const bool scales = GENERATE(false, true), in_place = GENERATE(false, true);
  const int64_t misaligned = GENERATE(0, 1);
  for (const Case& c : Sampled(AllCases())) {
    const GroupsShape& s = c.shape;
    CAPTURE(s.rows, s.positions, s.channels, s.groups, c.spread, c.center, scales, in_place);
    const std::vector<float> x = RandomValues(s.size(), 5, c.spread, c.center),
                             dy = RandomValues(s.size(), 6), scale = RandomValues(s.channels, 8),
                             before = RandomValues(s.channels, 10);
    const Exact exact = StatisticsOf(s, x);
    const DeviceArray<float> dev_x(*backend, x, misaligned), dev_dy(*backend, dy, misaligned),
        dev_scale(*backend, scale, misaligned), y(*backend, s.size()), dx(*backend, s.size()),
        mean(*backend, s.rows * s.groups), inverse_sigma(*backend, s.rows * s.groups),
        dscale(*backend, std::vector<float>(s.channels, NAN), misaligned),
        dshift(*backend, std::vector<float>(s.channels, NAN), misaligned),
        added_dscale(*backend, before, misaligned), added_dshift(*backend, before, misaligned);
    GroupNormKernel& kernel = backend->group_norm();
    kernel.Forward(s, kEpsilon, dev_x.data(), {}, mean.data(), inverse_sigma.data(), y.data());
    const GroupNormKernel::BackwardInput in{dev_x.data(), mean.data(), inverse_sigma.data(),
                                            scales ? dev_scale.data() : nullptr, dev_dy.data()};
    kernel.Backward(s, in, WriteMode::kAdd, added_dscale.data(), added_dshift.data(), nullptr);
    kernel.Backward(s, in, WriteMode::kOverwrite, dscale.data(), dshift.data(),
                    in_place ? dev_dy.data() : dx.data());
    const std::vector<float> got = in_place ? dev_dy.Read() : dx.Read();
    const std::vector<float> got_dscale = dscale.Read(), got_dshift = dshift.Read(),
                             got_added_dscale = added_dscale.Read(),
                             got_added_dshift = added_dshift.Read();

    const auto hat = [&](int64_t i) {
      const int64_t g = GroupAt(s, i);
      return (x[i] - exact.mean[g]) * exact.inverse_sigma[g];
    };
    const auto hat_error = [&](int64_t i) {
      const int64_t g = GroupAt(s, i);
      return 8 * kRoundoff * (std::fabs(x[i]) + std::fabs(exact.mean[g])) * exact.inverse_sigma[g];
    };
    const auto slope = [&](int64_t i) {
      return double{dy[i]} * (scales ? scale[i % s.channels] : 1.0);
    };
    std::vector<double> sum(s.channels), sum_hat(s.channels), size(s.channels),
        size_hat(s.channels);
    std::vector<double> g_sum(s.rows * s.groups), g_hat(s.rows * s.groups),
        g_error(s.rows * s.groups);
    for (int64_t i = 0; i < s.size(); ++i) {
      const int64_t k = i % s.channels, g = GroupAt(s, i);
      sum[k] += dy[i];
      sum_hat[k] += dy[i] * hat(i);
      size[k] += std::fabs(dy[i]);
      size_hat[k] += std::fabs(dy[i]) * hat_error(i);
      g_sum[g] += slope(i);
      g_hat[g] += slope(i) * hat(i);
      g_error[g] += std::fabs(slope(i)) * (hat_error(i) + kRoundoff * std::fabs(hat(i)));
    }
    for (int64_t k = 0; k < s.channels; ++k) {
      REQUIRE(std::fabs(got_dshift[k] - sum[k]) <= 2 * kRoundoff * size[k]);
      REQUIRE(std::fabs(got_dscale[k] - sum_hat[k]) <=
              2 * kRoundoff * std::fabs(sum_hat[k]) + 2 * size_hat[k]);
      const auto is_added = [&](float added, float alone) {
        const double want = double{before[k]} + alone;
        return std::fabs(added - want) <= 1.01 * kRoundoff * (std::fabs(want) + std::fabs(alone));
      };
      REQUIRE(is_added(got_added_dshift[k], got_dshift[k]));
      REQUIRE(is_added(got_added_dscale[k], got_dscale[k]));
    }
    const double share = 1.0 / static_cast<double>(s.positions * s.group_channels());
    for (int64_t i = 0; i < s.size(); ++i) {
      const int64_t g = GroupAt(s, i);
      const double mean_g = g_sum[g] * share, mean_hat = g_hat[g] * share;
      const double want = exact.inverse_sigma[g] * (slope(i) - mean_g - hat(i) * mean_hat);
      const double terms = std::fabs(slope(i)) + std::fabs(mean_g) + std::fabs(hat(i) * mean_hat);
      const double tolerance =
          exact.inverse_sigma[g] * (10 * kRoundoff * terms + hat_error(i) * std::fabs(mean_hat) +
                                    2 * std::fabs(hat(i)) * g_error[g] * share);
      REQUIRE(std::fabs(got[i] - want) <= tolerance);
    }
  }
}

TEST_CASE("a group of one value is the shift and has no gradient", "[group_norm]") {
  const auto backend = BackendUnderTest(1);
  const GroupsShape shape{2, 1, 2, 2};
  const DeviceArray<float> x(*backend, {1, -2, 3e8f, 1e-30f}), dy(*backend, {1, 1, 1, 1}),
      shift(*backend, {5, -6}), mean(*backend, 4), inverse_sigma(*backend, 4), y(*backend, 4),
      dx(*backend, 4);
  backend->group_norm().Forward(shape, kEpsilon, x.data(), {nullptr, shift.data()}, mean.data(),
                                inverse_sigma.data(), y.data());
  CHECK(y.Read() == std::vector<float>{5, -6, 5, -6});
  backend->group_norm().Backward(shape,
                                 {x.data(), mean.data(), inverse_sigma.data(), nullptr, dy.data()},
                                 WriteMode::kOverwrite, nullptr, nullptr, dx.data());
  CHECK(dx.Read() == std::vector<float>(4, 0.0f));
}

TEST_CASE("a NaN stays in its group", "[group_norm]") {
  const auto backend = BackendUnderTest(1);
  const GroupsShape shape{2, 1, 4, 2};
  const DeviceArray<float> x(*backend, {1, NAN, 2, 1, 1, 2, 3, 4}), mean(*backend, 4),
      inverse_sigma(*backend, 4), y(*backend, 8);
  backend->group_norm().Forward(shape, kEpsilon, x.data(), {}, mean.data(), inverse_sigma.data(),
                                y.data());
  const std::vector<float> got = y.Read();
  for (size_t i = 0; i < got.size(); ++i) CHECK(std::isnan(got[i]) == (i < 2));
}

}  // namespace tessera
