// Attention against f64 loops over all scores, in f32 and with factors that may be rounded to bf16.
#include <cmath>

#include "common/base/philox.h"
#include "kernels/bf16.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

struct Case {
  AttentionShape shape;
  double probability = 0;
  float spread = 1;
};

// Lengths of one place, of less than a block, of one and of several, and head sizes likewise.
std::vector<Case> Cases() {
  std::vector<Case> cases = {{{0, 3, 2, 4, true}}, {{2, 257, 1, 16, false}, 0.2}};
  for (const bool causal : {false, true}) {
    for (const int64_t places : {1, 2, 7, 33, 64}) {
      for (const int64_t size : {1, 5, 16, 32, 64, 128}) {
        const int64_t rows = 1 + (places + size) % 3, heads = size > 32 ? 1 : 3;
        cases.push_back({{rows, places, heads, size, causal}, places % 2 == 1 ? 0.3 : 0.0});
      }
    }
    cases.push_back({{1, 257, 2, 5, causal}});
    cases.push_back({{1, 257, 1, 64, causal}, causal ? 0.1 : 0.0});
  }
  cases.push_back({{1, 70, 1, 300, true}});
  return cases;
}

struct Use {
  DropoutKey key{5, 6, 7, 0};
  uint64_t layer = 300;
};

// What a weight is multiplied by.
double FactorOf(const Case& c, const Use& use, int64_t row, int64_t head, int64_t i, int64_t j) {
  if (c.probability == 0) return 1;
  const AttentionShape& s = c.shape;
  const uint64_t first = use.key.first_row + static_cast<uint64_t>(row);
  const uint64_t element = ((first * s.heads + head) * s.places * s.places + i * s.places + j) &
                           ((uint64_t{1} << 42) - 1);
  const PhiloxBlock block = Philox(use.key.seed, Stream::kDropout, use.key.A(use.layer),
                                   use.key.B(use.layer, element / 4));
  const bool dropped = double{UnitFloat(block[element % 4])} < c.probability;
  return dropped ? 0 : double{static_cast<float>(1 / (1 - c.probability))};
}

// Values with bounds of the error that f32 may make of them.
struct Bounded {
  explicit Bounded(int64_t n) : value(n), error(n) {}
  std::vector<double> value, error;
  void Check(const std::vector<float>& got) const {
    for (size_t i = 0; i < value.size(); ++i) {
      if (std::fabs(got[i] - value[i]) <= error[i]) continue;
      FAIL("entry " << i << " is " << got[i] << ", want " << value[i] << " +- " << error[i]);
    }
  }
};

// Weights below it may be 0.
constexpr double kTiny = 1e-36;

struct Exact {
  explicit Exact(const AttentionShape& s) : y(s.size()), log_sums(s.sums()), dqkv(3 * s.size()) {}
  Bounded y, log_sums, dqkv;
};

// One head of one row.
void AddHead(const Case& c, const Use& use, const std::vector<float>& qkv,
             const std::vector<float>& dy, int64_t row, int64_t head, Exact* exact) {
  const AttentionShape& s = c.shape;
  const int64_t n = s.places, d = s.head_size;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const double factor_error = s.bf16 ? double{kBf16RelativeError} : 0;
  const auto at = [&](int64_t part, int64_t place) {
    return ((row * n + place) * 3 + part) * s.width() + head * d;
  };
  for (int64_t i = 0; i < n; ++i) {
    const int64_t seen = s.causal ? i + 1 : n;
    const int64_t out = (row * n + i) * s.width() + head * d;
    std::vector<double> a(seen), factor(seen), slope(seen), slope_size(seen);
    double largest = -INFINITY, score_error = 0;
    for (int64_t j = 0; j < seen; ++j) {
      double score = 0, size = 0;
      for (int64_t k = 0; k < d; ++k) {
        const double term = double{qkv[at(0, i) + k]} * qkv[at(1, j) + k] * scale;
        score += term;
        size += std::fabs(term);
      }
      a[j] = score;
      factor[j] = FactorOf(c, use, row, head, i, j);
      largest = std::max(largest, score);
      score_error = std::max(score_error,
                             (kRoundoff * (static_cast<double>(d) + 4) + 2 * factor_error) * size);
    }
    double sum = 0;
    for (const double score : a) sum += std::exp(score - largest);
    const double log_sum = largest + std::log(sum);
    for (double& score : a) score = std::exp(score - log_sum);
    const auto roundings = static_cast<double>(2 * n + 2 * d + 64);
    const double relative =
        2 * score_error + kRoundoff * (roundings + std::fabs(largest) + std::fabs(log_sum));
    const int64_t of_sum = (row * s.heads + head) * n + i;
    exact->log_sums.value[of_sum] = log_sum;
    exact->log_sums.error[of_sum] = relative;
    double share = 0, share_size = 0;
    for (int64_t k = 0; k < d; ++k) {
      double y = 0, size = 0;
      for (int64_t j = 0; j < seen; ++j) {
        const double v = qkv[at(2, j) + k], g = dy[out + k];
        y += a[j] * factor[j] * v;
        size += a[j] * factor[j] * std::fabs(v);
        slope[j] += factor[j] * g * v;
        slope_size[j] += factor[j] * std::fabs(g * v);
        exact->dqkv.value[at(2, j) + k] += a[j] * factor[j] * g;
        exact->dqkv.error[at(2, j) + k] +=
            ((relative + 2 * factor_error) * a[j] + kTiny) * factor[j] * std::fabs(g);
      }
      exact->y.value[out + k] = y;
      exact->y.error[out + k] = (relative + 2 * factor_error) * size + kTiny * seen;
      share += dy[out + k] * y;
      share_size += std::fabs(dy[out + k]) * size;
    }
    for (int64_t j = 0; j < seen; ++j) {
      const double g = scale * a[j] * (slope[j] - share);
      const double error = 2 * ((relative + 2 * factor_error) * a[j] + kTiny) * scale *
                               (slope_size[j] + share_size) +
                           2 * factor_error * std::fabs(g) + kTiny;
      for (int64_t k = 0; k < d; ++k) {
        const double q = qkv[at(0, i) + k], key = qkv[at(1, j) + k];
        exact->dqkv.value[at(0, i) + k] += g * key;
        exact->dqkv.error[at(0, i) + k] += error * std::fabs(key);
        exact->dqkv.value[at(1, j) + k] += g * q;
        exact->dqkv.error[at(1, j) + k] += error * std::fabs(q);
      }
    }
  }
}

Exact ExactOf(const Case& c, const Use& use, const std::vector<float>& qkv,
              const std::vector<float>& dy) {
  Exact exact(c.shape);
  for (int64_t row = 0; row < c.shape.rows; ++row) {
    for (int64_t head = 0; head < c.shape.heads; ++head) {
      AddHead(c, use, qkv, dy, row, head, &exact);
    }
  }
  return exact;
}

struct Results {
  std::vector<float> y, log_sums, dqkv;
  bool operator==(const Results& other) const {
    return y == other.y && log_sums == other.log_sums && dqkv == other.dqkv;
  }
};

Results Run(Backend& backend, const Case& c, const Use& use, const std::vector<float>& qkv,
            const std::vector<float>& dy, int64_t misaligned = 0) {
  const AttentionShape& s = c.shape;
  const std::vector<float> none(3 * s.size(), NAN);
  const DeviceArray<float> dev_qkv(backend, qkv, misaligned), dev_dy(backend, dy, misaligned),
      y(backend, std::vector<float>(s.size(), NAN), misaligned),
      log_sums(backend, std::vector<float>(s.sums(), NAN), misaligned),
      dqkv(backend, none, misaligned);
  const DeviceArray<DropoutKey> key(backend, {use.key});
  const AttentionDropout dropout{c.probability > 0 ? key.data() : nullptr, use.layer,
                                 c.probability};
  backend.attention().Forward(s, dropout, dev_qkv.data(), y.data(), log_sums.data());
  backend.attention().Backward(
      s, dropout, {dev_qkv.data(), y.data(), log_sums.data(), dev_dy.data()}, dqkv.data());
  return {y.Read(), log_sums.Read(), dqkv.Read()};
}

// A part of an array that has `rows` rows.
std::vector<float> Rows(const std::vector<float>& all, int64_t rows, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(all.size()) / rows;
  return {all.begin() + begin * size, all.begin() + end * size};
}

}  // namespace

TEST_CASE("places get the values of those they attend to, and gradients go back, at every length",
          "[attention]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  int64_t misaligned = 0;
  for (const Case& c : Sampled(Cases())) {
    const AttentionShape& s = c.shape;
    CAPTURE(s.rows, s.places, s.heads, s.head_size, s.causal, c.probability, misaligned);
    const std::vector<float> qkv = RandomValues(3 * s.size(), 5, c.spread),
                             dy = RandomValues(s.size(), 6);
    const Exact exact = ExactOf(c, {}, qkv, dy);
    const Results got = Run(*backend, c, {}, qkv, dy, misaligned);
    exact.y.Check(got.y);
    exact.log_sums.Check(got.log_sums);
    exact.dqkv.Check(got.dqkv);
    misaligned = 1 - misaligned;
  }
}

TEST_CASE("attention in bf16 is attention within the rounding of its factors, at every length",
          "[attention][bf16]") {
  const auto backend = BackendUnderTest(1);
  int64_t misaligned = 0;
  for (Case c : Sampled(Cases())) {
    c.shape.bf16 = true;
    const AttentionShape& s = c.shape;
    CAPTURE(s.rows, s.places, s.heads, s.head_size, s.causal, c.probability, misaligned);
    const std::vector<float> qkv = RandomValues(3 * s.size(), 5, c.spread),
                             dy = RandomValues(s.size(), 6);
    const Exact exact = ExactOf(c, {}, qkv, dy);
    const Results got = Run(*backend, c, {}, qkv, dy, misaligned);
    exact.y.Check(got.y);
    exact.log_sums.Check(got.log_sums);
    exact.dqkv.Check(got.dqkv);
    CHECK(got == Run(*backend, c, {}, qkv, dy, 1 - misaligned));
    misaligned = 1 - misaligned;
  }
}

TEST_CASE("scores far from 0 neither overflow nor lose the others", "[attention]") {
  const auto backend = BackendUnderTest(1);
  for (const bool causal : {false, true}) {
    const Case c{{1, 70, 2, 16, causal}, 0, 30};
    const AttentionShape& s = c.shape;
    const std::vector<float> qkv = RandomValues(3 * s.size(), 5, c.spread),
                             dy = RandomValues(s.size(), 6);
    const Exact exact = ExactOf(c, {}, qkv, dy);
    const Results got = Run(*backend, c, {}, qkv, dy);
    exact.y.Check(got.y);
    exact.log_sums.Check(got.log_sums);
    exact.dqkv.Check(got.dqkv);
  }
  // Scores are 1e30, or -1e30, of all places alike: weights are equal.
  for (const float key : {1e15f, -1e15f}) {
    const AttentionShape s{1, 5, 1, 1, false};
    std::vector<float> qkv;
    for (const float value : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f}) {
      qkv.insert(qkv.end(), {1e15f, key, value});
    }
    const Results got = Run(*backend, {s}, {}, qkv, std::vector<float>(5, 0.0f));
    for (const float y : got.y) CHECK(y == Approx(3));
    CHECK(got.dqkv == std::vector<float>(15, 0.0f));
  }
}

TEST_CASE("a row of a call has the same bits alone, and a call the same bits again",
          "[attention]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const bool bf16 = GENERATE(false, true);
  for (const bool causal : {false, true}) {
    Case c{{3, 71, 2, 24, causal, bf16}};
    const std::vector<float> qkv = RandomValues(3 * c.shape.size(), 5),
                             dy = RandomValues(c.shape.size(), 6);
    const Results all = Run(*backend, c, {}, qkv, dy);
    CHECK(all == Run(*backend, c, {}, qkv, dy, 1));
    c.shape.rows = 1;
    for (const int64_t row : {0, 1, 2}) {
      const Results alone =
          Run(*backend, c, {}, Rows(qkv, 3, row, row + 1), Rows(dy, 3, row, row + 1));
      CHECK(alone.y == Rows(all.y, 3, row, row + 1));
      CHECK(alone.log_sums == Rows(all.log_sums, 3, row, row + 1));
      CHECK(alone.dqkv == Rows(all.dqkv, 3, row, row + 1));
    }
  }
}

TEST_CASE("a row drops the same weights in a piece of its minibatch as in all of it",
          "[attention][dropout]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const bool bf16 = GENERATE(false, true);
  for (const int64_t places : {3, 18}) {
    Case c{{5, places, 2, 8, true, bf16}, 0.4};
    Use use;
    const std::vector<float> qkv = RandomValues(3 * c.shape.size(), 5),
                             dy = RandomValues(c.shape.size(), 6);
    const Results all = Run(*backend, c, use, qkv, dy);
    for (const int64_t first : {1, 2, 4}) {
      c.shape.rows = 5 - first;
      use.key.first_row = static_cast<uint64_t>(first);
      const Results piece = Run(*backend, c, use, Rows(qkv, 5, first, 5), Rows(dy, 5, first, 5));
      CHECK(piece.y == Rows(all.y, 5, first, 5));
      CHECK(piece.dqkv == Rows(all.dqkv, 5, first, 5));
    }
  }
}

TEST_CASE("weights beyond the last number of a layer draw from the first ones",
          "[attention][dropout]") {
  const auto backend = BackendUnderTest(1);
  const Case c{{2, 16, 1, 4, false, GENERATE(false, true)}, 0.5};
  Use use;
  // The second row begins with number 2^42.
  use.key.first_row = (uint64_t{1} << 34) - 1;
  const std::vector<float> qkv = RandomValues(3 * c.shape.size(), 5),
                           dy = RandomValues(c.shape.size(), 6);
  const Exact exact = ExactOf(c, use, qkv, dy);
  const Results got = Run(*backend, c, use, qkv, dy);
  exact.y.Check(got.y);
  exact.dqkv.Check(got.dqkv);
}

TEST_CASE("sums of scores are written where they are wanted", "[attention]") {
  const auto backend = BackendUnderTest(1);
  const Case c{{2, 9, 2, 8, true}};
  const std::vector<float> qkv = RandomValues(3 * c.shape.size(), 5);
  const Results want = Run(*backend, c, {}, qkv, RandomValues(c.shape.size(), 6));
  const DeviceArray<float> dev_qkv(*backend, qkv), y(*backend, c.shape.size());
  backend->attention().Forward(c.shape, {}, dev_qkv.data(), y.data(), nullptr);
  CHECK(y.Read() == want.y);
}

TEST_CASE("a NaN reaches the places that see it and no other", "[attention]") {
  const auto backend = BackendUnderTest(1);
  const Case c{{1, 20, 1, 4, true, GENERATE(false, true)}};
  std::vector<float> qkv = RandomValues(3 * c.shape.size(), 5);
  const std::vector<float> dy = RandomValues(c.shape.size(), 6);
  const Results want = Run(*backend, c, {}, qkv, dy);
  qkv[(11 * 3 + 1) * 4] = NAN;  // the key of place 11
  const std::vector<float> got = Run(*backend, c, {}, qkv, dy).y;
  for (int64_t i = 0; i < c.shape.size(); ++i) {
    CAPTURE(i);
    if (i < 11 * 4) {
      CHECK(got[i] == want.y[i]);
    } else {
      CHECK(std::isnan(got[i]));
    }
  }
}

}  // namespace tessera
