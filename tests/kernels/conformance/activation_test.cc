#include <cmath>
#include <limits>
#include <type_traits>

#include "common/base/philox.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

// One layer's dropout in one step.
struct Use {
  DropoutKey key;
  uint64_t layer = 0;
};

std::vector<float> Dropped(Backend& backend, const Use& use, double probability,
                           const std::vector<float>& x, bool in_place = false, int64_t shift = 1) {
  const DeviceArray<float> from(backend, x, shift), to(backend, x.size(), shift);
  float* out = in_place ? from.data() : to.data();
  const DeviceArray<DropoutKey> key(backend, {use.key});
  backend.activation().Dropout({1, static_cast<int64_t>(x.size())}, key.data(), use.layer,
                               probability, from.data(), out);
  return in_place ? from.Read() : to.Read();
}

// The functions in f64, and their slopes.
struct Exact {
  ActivationFunction function;
  double (*value)(double x);
  double (*slope)(double x);
};

double Phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double Density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); }
double Share(double x) { return 1 / (1 + std::exp(-x)); }
double Inner(double x) { return 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }

const std::vector<Exact>& Functions() {
  static const std::vector<Exact> functions = {
      {{Activation::kGelu},
       [](double x) { return x * Phi(x); },
       [](double x) { return Phi(x) + x * Density(x); }},
      {{Activation::kGeluTanh},
       [](double x) { return x * Share(Inner(x)); },
       [](double x) {
         const double inner = 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
         return Share(Inner(x)) + x * Share(Inner(x)) * Share(-Inner(x)) * inner;
       }},
      {{Activation::kTanh},
       [](double x) { return std::tanh(x); },
       [](double x) { return 1 / std::pow(std::cosh(x), 2); }},
      {{Activation::kSigmoid}, Share, [](double x) { return Share(x) * Share(-x); }},
      {{Activation::kSilu},
       [](double x) { return x * Share(x); },
       [](double x) { return Share(x) + x * Share(x) * Share(-x); }},
      {{Activation::kLeakyRelu, 0.25f},
       [](double x) { return x > 0 ? x : 0.25 * x; },
       [](double x) { return x > 0 ? 1.0 : 0.25; }},
      {{Activation::kLeakyRelu, 0},
       [](double x) { return x > 0 ? x : 0.0; },
       [](double x) { return x > 0 ? 1.0 : 0.0; }}};
  return functions;
}

// What ApplyBackward reads: y, or x.
bool ReadsY(const ActivationFunction& function) {
  bool of_y = false;
  WithFunction(function, [&](const auto& f) { of_y = std::decay_t<decltype(f)>::kSlopeOfY; });
  return of_y;
}

}  // namespace

TEST_CASE("relu keeps positive values and NaN, and its gradient follows the output",
          "[activation]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t misaligned = GENERATE(0, 1);
  for (const int64_t n : Sizes()) {
    for (const bool in_place : {false, true}) {
      CAPTURE(n, in_place);
      const std::vector<float> x = RandomValues(n, 1), dy = RandomValues(n, 2);
      const DeviceArray<float> dev_x(*backend, x, misaligned), dev_y(*backend, n, misaligned),
          dev_dy(*backend, dy, misaligned), dev_dx(*backend, n, misaligned);
      const DeviceArray<float>& y = in_place ? dev_x : dev_y;
      const DeviceArray<float>& dx = in_place ? dev_dy : dev_dx;
      backend->activation().Relu(n, dev_x.data(), y.data());
      backend->activation().ReluBackward(n, y.data(), dev_dy.data(), dx.data());
      const std::vector<float> got_y = y.Read(), got_dx = dx.Read();
      for (int64_t i = 0; i < n; ++i) {
        REQUIRE(got_y[i] == std::max(x[i], 0.0f));
        REQUIRE(got_dx[i] == (x[i] > 0 ? dy[i] : 0.0f));
      }
    }
  }
  const DeviceArray<float> odd(*backend, {NAN, INFINITY, -INFINITY, 0}), y(*backend, 4),
      dy(*backend, {1, 1, 1, 1});
  backend->activation().Relu(4, odd.data(), y.data());
  backend->activation().ReluBackward(4, y.data(), dy.data(), dy.data());
  CHECK(std::isnan(y.Read()[0]));
  CHECK(y.Read()[1] == INFINITY);
  CHECK(y.Read()[2] == 0);
  CHECK(dy.Read() == std::vector<float>{1, 1, 0, 0});
}

TEST_CASE("functions of a value and their slopes are exact to a few roundings, at every length",
          "[activation]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t misaligned = GENERATE(0, 1);
  const bool in_place = GENERATE(false, true);
  for (size_t f = 0; f < Functions().size(); ++f) {
    const Exact& exact = Functions()[f];
    const bool of_y = ReadsY(exact.function);
    for (const int64_t n : Sizes()) {
      CAPTURE(f, n, misaligned, in_place);
      const std::vector<float> x = RandomValues(n, 1, 4), dy = RandomValues(n, 2);
      const DeviceArray<float> dev_x(*backend, x, misaligned), dev_y(*backend, n, misaligned),
          dev_dy(*backend, dy, misaligned), dev_dx(*backend, n, misaligned);
      const DeviceArray<float>& y = in_place && of_y ? dev_x : dev_y;
      const DeviceArray<float>& dx = in_place ? dev_dy : dev_dx;
      backend->activation().Apply(exact.function, n, dev_x.data(), y.data());
      const std::vector<float> got_y = y.Read();
      backend->activation().ApplyBackward(exact.function, n, of_y ? y.data() : dev_x.data(),
                                          dev_dy.data(), dx.data());
      const std::vector<float> got_dx = dx.Read();
      for (int64_t i = 0; i < n; ++i) {
        const double want = exact.value(x[i]), slope = exact.slope(x[i]);
        REQUIRE(std::fabs(got_y[i] - want) <= 1e-4 * std::fabs(want) + 1e-35);
        REQUIRE(std::fabs(got_y[i] - want) <= 16 * kRoundoff * std::max(std::fabs(want), 0.125));
        REQUIRE(std::fabs(got_dx[i] - slope * dy[i]) <= 8 * kRoundoff * std::fabs(dy[i]));
      }
    }
  }
}

TEST_CASE("functions have their limits at infinity, pass a NaN, and keep signs", "[activation]") {
  const auto backend = BackendUnderTest(1);
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> x = {-INFINITY, -most, -100, -20, -least, -0.0f,
                                0,         least, 20,   100, most,   INFINITY};
  const auto n = static_cast<int64_t>(x.size());
  for (size_t f = 0; f < Functions().size(); ++f) {
    const Exact& exact = Functions()[f];
    const bool of_y = ReadsY(exact.function);
    // A slope of 0 times infinity is none.
    const bool is_flat = exact.function.kind == Activation::kLeakyRelu && exact.function.slope == 0;
    const DeviceArray<float> dev_x(*backend, x), y(*backend, n), dx(*backend, n),
        dy(*backend, std::vector<float>(x.size(), 1.0f));
    backend->activation().Apply(exact.function, n, dev_x.data(), y.data());
    backend->activation().ApplyBackward(exact.function, n, of_y ? y.data() : dev_x.data(),
                                        dy.data(), dx.data());
    const std::vector<float> got = y.Read(), got_dx = dx.Read();
    for (int64_t i = is_flat ? 1 : 0; i < n; ++i) {
      CAPTURE(f, i, x[i], got[i], got_dx[i]);
      CHECK_FALSE(std::isnan(got[i]));
      CHECK_FALSE(std::isnan(got_dx[i]));
      if (exact.function.kind == Activation::kTanh) CHECK((got[i] > 0) == (x[i] > 0));
      if (exact.function.kind == Activation::kLeakyRelu) CHECK((got[i] > 0) == (x[i] > 0));
      // Far from 0 all of them are 0, 1, x or a part of it, and their slopes are 0 or 1 or that part.
      if (std::fabs(x[i]) < 20) continue;
      const double at = std::min(std::max(x[i], -1000.0f), 1000.0f);
      const double want = exact.value(at) * (std::fabs(exact.value(at)) > 1 ? x[i] / at : 1.0);
      if (std::isinf(x[i]) && std::isinf(want)) {
        CHECK(got[i] == want);
      } else {
        CHECK(std::fabs(got[i] - want) <= 1e-6 * std::fabs(want) + 1e-7);
      }
      CHECK(std::fabs(got_dx[i] - exact.slope(at)) <= 1e-6);
    }
    const DeviceArray<float> none(*backend, std::vector<float>{NAN}), out(*backend, 1);
    backend->activation().Apply(exact.function, 1, none.data(), out.data());
    CHECK(std::isnan(out.Read()[0]));
  }
}

TEST_CASE("dropout decides element by element as Philox says", "[activation][dropout]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t misaligned = GENERATE(0, 1);
  const std::vector<Use> uses = {{{0, 0, 0}, 0},
                                 {{0x123456789abcdef0u, 0xdcba9876543u, 0xffff}, 0xff},
                                 {{5, 77, 4}, 4095},
                                 {{7, uint64_t{1} << 40, 3}, 2}};
  for (const Use& use : uses) {
    const DropoutKey& key = use.key;
    for (const double probability : {0.1, 0.5, 0.999}) {
      for (const int64_t n : Sizes()) {
        CAPTURE(key.seed, probability, n);
        const std::vector<float> x = RandomValues(n, 3);
        const std::vector<float> got =
            Dropped(*backend, use, probability, x, n % 2 == 1, misaligned);
        const float scale = static_cast<float>(1 / (1 - probability));
        for (int64_t i = 0; i < n; ++i) {
          const PhiloxBlock block =
              Philox(key.seed, Stream::kDropout, key.step + (use.layer / 256 << 48),
                     key.rank << 48 | use.layer % 256 << 40 | (i / 4));
          const bool dropped = double{UnitFloat(block[i % 4])} < probability;
          REQUIRE(got[i] == (dropped ? 0.0f : x[i] * scale));
        }
      }
    }
  }
}

TEST_CASE("a row draws the same numbers in a piece of its minibatch as in all of it",
          "[activation][dropout]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t misaligned = GENERATE(0, 1);
  const int64_t rows = 23;
  // Rows that begin at any of the four numbers of a Philox block, and some worth several threads.
  for (const int64_t columns : {1, 2, 3, 4, 7, 33, 64, 65, 4099}) {
    const std::vector<float> x = RandomValues(rows * columns, 3);
    const Use use{{5, 6, 7}, 8};
    const std::vector<float> whole = Dropped(*backend, use, 0.4, x);
    for (const int64_t first : {0, 1, 2, 3, 4, 9, 22, 23}) {
      CAPTURE(columns, first, misaligned);
      const std::vector<float> part(x.begin() + first * columns, x.end());
      const DeviceArray<float> from(*backend, part, misaligned),
          to(*backend, part.size(), misaligned);
      DropoutKey key = use.key;
      key.first_row = static_cast<uint64_t>(first);
      const DeviceArray<DropoutKey> dev_key(*backend, {key});
      backend->activation().Dropout({rows - first, columns}, dev_key.data(), use.layer, 0.4,
                                    from.data(), to.data());
      CHECK(to.Read() == std::vector<float>(whole.begin() + first * columns, whole.end()));
    }
  }
}

TEST_CASE("probability 0 drops nothing", "[activation][dropout]") {
  const auto backend = BackendUnderTest(1);
  const std::vector<float> x = RandomValues(5000, 3);
  CHECK(Dropped(*backend, {{1, 2, 3}, 4}, 0, x) == x);
}

TEST_CASE("dropout keeps the expected share and mean", "[activation][dropout]") {
  const auto backend = BackendUnderTest(1);
  const int64_t n = 1000000;
  const std::vector<float> got =
      Dropped(*backend, {{11, 5, 0}, 3}, 0.3, std::vector<float>(n, 1.0f));
  const double kept = n - std::count(got.begin(), got.end(), 0.0f);
  CHECK(std::fabs(kept / n - 0.7) < 5 * std::sqrt(0.3 * 0.7 / n));  // Five standard deviations.
}

TEST_CASE("another step, rank, layer or seed drops other elements", "[activation][dropout]") {
  const auto backend = BackendUnderTest(1);
  const std::vector<float> x(1000, 1.0f);
  const std::vector<float> base = Dropped(*backend, {{1, 1, 1}, 1}, 0.5, x);
  for (const Use& other :
       {Use{{2, 1, 1}, 1}, {{1, 2, 1}, 1}, {{1, 1, 2}, 1}, {{1, 1, 1}, 2}, {{1, 1, 1}, 257}}) {
    const std::vector<float> got = Dropped(*backend, other, 0.5, x);
    int64_t same = 0;
    for (size_t i = 0; i < x.size(); ++i) same += got[i] == base[i] ? 1 : 0;
    CHECK(same > 400);
    CHECK(same < 600);
  }
}

}  // namespace tessera
