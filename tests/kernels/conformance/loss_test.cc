#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/kernels/conformance/backend_under_test.h"
#include "tests/kernels/conformance/loss_values.h"

namespace tessera {
namespace {

struct Result {
  LossSums sums;
  std::vector<float> gradient;
};

// Asking for the gradient changes nothing else. Bytes, since a loss may be NaN.
void RequireSameBytes(const LossSums& without, const LossSums& with) {
  REQUIRE(std::memcmp(&without, &with, sizeof(with)) == 0);
}

Result Softmax(Backend& backend, const MatrixShape& s, const std::vector<float>& z,
               const std::vector<int32_t>& labels, bool in_place = false, float smoothing = 0) {
  const DeviceArray<float> logits(backend, z, 1), gradient(backend, s.size(), 1);
  const DeviceArray<int32_t> dev_labels(backend, labels, 1);
  const DeviceArray<LossSums> sums(backend, 1), without(backend, 1);
  const LossTargets want{dev_labels.data(), nullptr, smoothing};
  backend.loss().SoftmaxCrossEntropy(s, logits.data(), want, {}, nullptr, without.data());
  const DeviceArray<float>& out = in_place ? logits : gradient;
  backend.loss().SoftmaxCrossEntropy(s, logits.data(), want, {}, out.data(), sums.data());
  const Result result{sums.Read()[0], out.Read()};
  RequireSameBytes(without.Read()[0], result.sums);
  return result;
}

// Sigmoid's cross entropy, or the squared error.
using LossOfTargets = decltype(&LossKernel::SigmoidCrossEntropy);
Result OfTargets(Backend& backend, LossOfTargets loss, const MatrixShape& s,
                 const std::vector<float>& z, const std::vector<int32_t>* labels,
                 const std::vector<float>* targets, bool in_place) {
  const DeviceArray<float> logits(backend, z, 1), gradient(backend, s.size(), 1);
  const DeviceArray<int32_t> dev_labels(backend,
                                        labels == nullptr ? std::vector<int32_t>() : *labels, 1);
  const DeviceArray<float> dev_targets(backend,
                                       targets == nullptr ? std::vector<float>() : *targets, 1);
  const DeviceArray<LossSums> sums(backend, 1), without(backend, 1);
  const DeviceArray<float>& out = in_place ? logits : gradient;
  LossTargets want;
  if (labels != nullptr) want.labels = dev_labels.data();
  if (targets != nullptr) want.targets = dev_targets.data();
  (backend.loss().*loss)(s, logits.data(), want, {}, nullptr, without.data());
  (backend.loss().*loss)(s, logits.data(), want, {}, out.data(), sums.data());
  const Result result{sums.Read()[0], out.Read()};
  RequireSameBytes(without.Read()[0], result.sums);
  return result;
}

Result Sigmoid(Backend& backend, const MatrixShape& s, const std::vector<float>& z,
               const std::vector<int32_t>* labels, const std::vector<float>* targets,
               bool in_place = false) {
  return OfTargets(backend, &LossKernel::SigmoidCrossEntropy, s, z, labels, targets, in_place);
}

Result Squares(Backend& backend, const MatrixShape& s, const std::vector<float>& z,
               const std::vector<int32_t>* labels, const std::vector<float>* targets,
               bool in_place = false) {
  return OfTargets(backend, &LossKernel::MeanSquaredError, s, z, labels, targets, in_place);
}

// Indices by falling logit, equal ones by rising index.
std::vector<int64_t> Ranked(const float* z, int64_t n) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return z[a] > z[b]; });
  return order;
}

template <typename IsLabel>
void CheckCounts(const MatrixShape& s, const std::vector<float>& z, const LossSums& got,
                 const IsLabel& is_label) {
  int64_t hits[3] = {};
  for (int64_t r = 0; r < s.rows; ++r) {
    const std::vector<int64_t> order = Ranked(&z[r * s.columns], s.columns);
    for (int d = 0; d < 3; ++d) {
      for (int64_t i = 0; i < std::min<int64_t>(kPrecisionDepths[d], s.columns); ++i) {
        hits[d] += is_label(r, order[i]);
      }
    }
  }
  for (int d = 0; d < 3; ++d) REQUIRE(got.hits[d] == hits[d]);
}

// How many rows have their label among the first 10 predictions.
int64_t TopHits(const MatrixShape& s, const std::vector<float>& z,
                const std::vector<int32_t>& labels) {
  int64_t hits = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    const std::vector<int64_t> order = Ranked(&z[r * s.columns], s.columns);
    for (int64_t i = 0; i < std::min<int64_t>(10, s.columns); ++i) hits += order[i] == labels[r];
  }
  return hits;
}

const std::vector<MatrixShape>& Shapes() {
  // The last but three are around the lengths at which a device reads rows in another way, or one that it reads in
  // pieces, of which the last is not whole.
  static const std::vector<MatrixShape> shapes = {
      {1, 1},    {1, 2},    {3, 5},    {128, 40}, {7, 64},   {5, 65},    {33, 1000}, {2, 1024},
      {3, 1025}, {2, 4096}, {3, 4097}, {2, 8192}, {3, 8193}, {2, 10239}, {300, 129}, {2100, 7}};
  return shapes;
}

}  // namespace

TEST_CASE("softmax cross entropy equals its f64 formula, with its gradient and counts", "[loss]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const float spread = GENERATE(1.0f, 30.0f, 2000.0f);
  for (const MatrixShape& s : Shapes()) {
    CAPTURE(s.rows, s.columns, spread);
    const std::vector<float> z = RandomValues(s.size(), 3, spread, spread);
    std::vector<int32_t> labels(s.rows);
    for (int64_t r = 0; r < s.rows; ++r) labels[r] = static_cast<int32_t>((7 * r + 3) % s.columns);
    const Result got = Softmax(*backend, s, z, labels, s.rows % 2 == 1);
    double loss = 0, tolerance = 0;
    for (int64_t r = 0; r < s.rows; ++r) {
      const float* row = &z[r * s.columns];
      const double largest = *std::max_element(row, row + s.columns);
      double sum = 0;
      for (int64_t j = 0; j < s.columns; ++j) sum += std::exp(row[j] - largest);
      loss += std::log(sum) + largest - row[labels[r]];
      tolerance += 16 * kRoundoff;
      for (int64_t j = 0; j < s.columns; ++j) {
        const double p = std::exp(row[j] - largest) / sum, t = labels[r] == j ? 1 : 0;
        // exp's argument is rounded once, so its value is off by |argument| roundings and two of
        // its own.
        const double error = kRoundoff * (p * (10 + 2 * (largest - row[j])) + 2 * t) + 1e-37;
        REQUIRE(std::fabs(got.gradient[r * s.columns + j] - (p - t) / s.rows) <= error / s.rows);
      }
    }
    REQUIRE(std::fabs(got.sums.loss - loss) <= tolerance + 1e-12 * std::fabs(loss));
    CheckCounts(s, z, got.sums, [&](int64_t r, int64_t j) { return labels[r] == j; });
    REQUIRE(got.sums.correct == got.sums.hits[0]);
    REQUIRE(got.sums.top_hits == TopHits(s, z, labels));
  }
}

TEST_CASE("losses and gradients are PyTorch's", "[loss]") {
  const auto backend = BackendUnderTest(1);
  for (const LossCase& of : LossCases()) {
    CAPTURE(static_cast<int>(of.kind), of.smoothing, of.columns);
    const MatrixShape s{kLossRows, of.columns};
    std::vector<float> z(s.size()), numbers(s.size());
    std::vector<int32_t> labels(kLossRows);
    for (int i = 0; i < static_cast<int>(s.size()); ++i) {
      z[i] = static_cast<float>(i * 7 % 23 - 11) / 4;
      numbers[i] = static_cast<float>(i * 5 % 17 - 8) / 2;
    }
    for (int r = 0; r < kLossRows; ++r) labels[r] = static_cast<int32_t>((5 * r + 2) % of.columns);
    for (const bool in_place : {false, true}) {
      const Result got = of.kind == LossKind::kSoftmax ? Softmax(*backend, s, z, labels, in_place,
                                                                 static_cast<float>(of.smoothing))
                         : of.kind == LossKind::kSquareOfLabels
                             ? Squares(*backend, s, z, &labels, nullptr, in_place)
                             : Squares(*backend, s, z, nullptr, &numbers, in_place);
      CHECK(got.sums.loss / kLossRows == Approx(of.loss).epsilon(1e-6));
      for (int64_t i = 0; i < s.size(); ++i) {
        CHECK(std::fabs(got.gradient[i] - of.gradient[i]) <= 2e-7);
      }
    }
  }
}

TEST_CASE("smoothed targets equal their f64 formula, in rows of any length", "[loss]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const float smoothing = GENERATE(0.1f, 0.75f, 1.0f);
  for (const MatrixShape& s : Sampled(Shapes())) {
    CAPTURE(s.rows, s.columns, smoothing);
    const std::vector<float> z = RandomValues(s.size(), 3, 4, 4);
    std::vector<int32_t> labels(s.rows);
    for (int64_t r = 0; r < s.rows; ++r) labels[r] = static_cast<int32_t>((7 * r + 3) % s.columns);
    const Result got = Softmax(*backend, s, z, labels, s.rows % 2 == 1, smoothing);
    const auto n = static_cast<double>(s.columns), even = static_cast<double>(smoothing);
    double loss = 0;
    for (int64_t r = 0; r < s.rows; ++r) {
      const float* row = &z[r * s.columns];
      const double largest = *std::max_element(row, row + s.columns);
      double sum = 0, of_targets = 0;
      for (int64_t j = 0; j < s.columns; ++j) {
        const double t = (labels[r] == j ? 1 - even : 0) + even / n;
        sum += std::exp(row[j] - largest);
        of_targets += t * (row[j] - largest);
      }
      loss += std::log(sum) - of_targets;
      for (int64_t j = 0; j < s.columns; ++j) {
        const double p = std::exp(row[j] - largest) / sum;
        const double t = (labels[r] == j ? 1 - even : 0) + even / n;
        const double error = kRoundoff * (p * (12 + 2 * (largest - row[j])) + 4 * t) + 1e-37;
        REQUIRE(std::fabs(got.gradient[r * s.columns + j] - (p - t) / s.rows) <= error / s.rows);
      }
    }
    REQUIRE(std::fabs(got.sums.loss - loss) <= 16 * kRoundoff * s.rows + 1e-12 * loss);
    // What is counted does not change.
    const LossSums plain = Softmax(*backend, s, z, labels).sums;
    REQUIRE(got.sums.correct == plain.correct);
    REQUIRE(got.sums.top_hits == plain.top_hits);
    for (int d = 0; d < 3; ++d) REQUIRE(got.sums.hits[d] == plain.hits[d]);
  }
}

TEST_CASE("the squared error equals its f64 formula, and a label its one-hot target", "[loss]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const MatrixShape& s : Shapes()) {
    CAPTURE(s.rows, s.columns);
    const std::vector<float> z = RandomValues(s.size(), 3, 4);
    std::vector<float> t = RandomValues(s.size(), 4);
    const bool in_place = s.rows % 2 == 1;
    const auto check = [&](const Result& got) {
      double loss = 0;
      for (int64_t i = 0; i < s.size(); ++i) {
        const double distance = double{z[i]} - double{t[i]};
        loss += distance * distance / s.columns;
        REQUIRE(std::fabs(got.gradient[i] - 2 * distance / static_cast<double>(s.size())) <=
                8 * kRoundoff * (std::fabs(z[i]) + std::fabs(t[i])) / s.size());
      }
      REQUIRE(std::fabs(got.sums.loss - loss) <= 8 * kRoundoff * (loss + s.rows));
    };
    const Result of_numbers = Squares(*backend, s, z, nullptr, &t, in_place);
    check(of_numbers);
    // Numbers are no predictions.
    REQUIRE(of_numbers.sums.correct + of_numbers.sums.hits[2] + of_numbers.sums.top_hits == 0);
    std::vector<int32_t> labels(s.rows);
    t.assign(s.size(), 0.0f);
    for (int64_t r = 0; r < s.rows; ++r) {
      labels[r] = static_cast<int32_t>((7 * r + 3) % std::max<int64_t>(s.columns, 9));
      if (s.columns > 1) labels[r] = static_cast<int32_t>(labels[r] % s.columns);
      t[s.columns == 1 ? r : r * s.columns + labels[r]] =
          s.columns == 1 ? static_cast<float>(labels[r]) : 1.0f;
    }
    const Result of_labels = Squares(*backend, s, z, &labels, nullptr, in_place);
    check(of_labels);
    REQUIRE(of_labels.gradient == Squares(*backend, s, z, nullptr, &t).gradient);
    if (s.columns == 1) {
      REQUIRE(of_labels.sums.correct + of_labels.sums.hits[2] + of_labels.sums.top_hits == 0);
      continue;
    }
    const LossSums counts = Softmax(*backend, s, z, labels).sums;
    REQUIRE(of_labels.sums.correct == counts.correct);
    REQUIRE(of_labels.sums.top_hits == counts.top_hits);
    for (int d = 0; d < 3; ++d) REQUIRE(of_labels.sums.hits[d] == counts.hits[d]);
  }
}

TEST_CASE("pieces of a minibatch have its gradients, and their sums add up to its own", "[loss]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const MatrixShape& s : Sampled(Shapes())) {
    CAPTURE(s.rows, s.columns);
    const std::vector<float> z = RandomValues(s.size(), 3);
    std::vector<float> t = RandomValues(s.size(), 4);
    for (float& target : t) target = target > 1 ? 1.0f : 0.0f;
    std::vector<int32_t> labels(s.rows);
    for (int64_t r = 0; r < s.rows; ++r) labels[r] = static_cast<int32_t>((7 * r + 3) % s.columns);
    const DeviceArray<float> logits(*backend, z, 1), gradient(*backend, s.size(), 1),
        targets(*backend, t, 1);
    const DeviceArray<int32_t> dev_labels(*backend, labels, 1);
    LossSums garbage;
    garbage.loss = NAN;
    garbage.correct = 77;
    const DeviceArray<LossSums> sums(*backend, {garbage});
    for (const LossOfTargets loss :
         {&LossKernel::SoftmaxCrossEntropy, &LossKernel::SigmoidCrossEntropy,
          &LossKernel::MeanSquaredError}) {
      const bool softmax = loss == &LossKernel::SoftmaxCrossEntropy;
      const Result whole = softmax ? Softmax(*backend, s, z, labels, false, 0.25f)
                                   : OfTargets(*backend, loss, s, z, nullptr, &t, false);
      const int64_t rows = (s.rows + 2) / 3;
      for (int64_t row = 0; row < s.rows; row += rows) {
        const MatrixShape part{std::min(rows, s.rows - row), s.columns};
        const LossPiece piece{s.rows, row == 0 ? WriteMode::kOverwrite : WriteMode::kAdd};
        const int64_t at = row * s.columns;
        LossTargets want{nullptr, targets.data() + at};
        if (softmax) want = {dev_labels.data() + row, nullptr, 0.25f};
        (backend->loss().*loss)(part, logits.data() + at, want, piece, gradient.data() + at,
                                sums.data());
      }
      // A row is computed by itself; only the order in which f64 sums are added may differ.
      CHECK(gradient.Read() == whole.gradient);
      const LossSums got = sums.Read()[0];
      CHECK(std::fabs(got.loss - whole.sums.loss) <=
            static_cast<double>(s.rows) * 0x1p-52 * std::fabs(whole.sums.loss));
      CHECK(got.correct == whole.sums.correct);
      for (int d = 0; d < 3; ++d) CHECK(got.hits[d] == whole.sums.hits[d]);
      CHECK(got.top_hits == whole.sums.top_hits);
    }
  }
}

TEST_CASE("equal logits rank by index, and depth is cut at the number of outputs", "[loss]") {
  const auto backend = BackendUnderTest(1);
  const std::vector<float> z(2 * 6, 1.0f);
  const Result got = Softmax(*backend, {2, 6}, z, {0, 2});
  CHECK(got.sums.correct == 1);
  CHECK(got.sums.hits[0] == 1);
  CHECK(got.sums.hits[1] == 2);
  const Result last = Softmax(*backend, {2, 6}, z, {5, 4});
  CHECK(last.sums.hits[2] == 1);
  const Result two = Softmax(*backend, {1, 2}, {5, 5}, {1});
  CHECK(two.sums.hits[0] == 0);
  CHECK(two.sums.hits[2] == 1);
  // With targets the first ones themselves are found.
  for (const int64_t target : {0, 2, 3, 4, 5, 299}) {
    CAPTURE(target);
    std::vector<float> targets(300, 0.0f);
    targets[target] = 1;
    const std::vector<float> equal(300, 1.0f);
    const LossSums got = Sigmoid(*backend, {1, 300}, equal, nullptr, &targets).sums;
    CHECK(got.hits[0] == (target < 1 ? 1 : 0));
    CHECK(got.hits[1] == (target < 3 ? 1 : 0));
    CHECK(got.hits[2] == (target < 5 ? 1 : 0));
  }
}

TEST_CASE("what is impossible has no share, and ranks behind, in rows of any length", "[loss]") {
  const auto backend = BackendUnderTest(1);
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (const int64_t columns : {2, 300, 1030, 5000, 9000}) {
    CAPTURE(columns);
    std::vector<float> z(2 * columns, kNever);
    z[columns - 1] = z[columns - 2] = 7;
    z[columns] = -3;
    const auto last = static_cast<int32_t>(columns - 1);
    const Result got = Softmax(*backend, {2, columns}, z, {last, 0}, true);
    CHECK(got.sums.loss == Approx(std::log(2.0)));
    CHECK(got.sums.correct == 1);
    CHECK(got.sums.hits[1] == 2);
    std::vector<float> want(2 * columns);
    want[columns - 2] = 0.25f;
    want[columns - 1] = -0.25f;
    CHECK(got.gradient == want);
    // A label that cannot be, behind others that cannot.
    const Result never = Softmax(*backend, {1, columns}, {z.begin() + columns, z.end()}, {last});
    CHECK(std::isinf(never.sums.loss));
    CHECK(never.sums.hits[2] == (columns <= 5 ? 1 : 0));
    const std::vector<int32_t> label = {last};
    const std::vector<float> first(z.begin(), z.begin() + columns);
    CHECK(Sigmoid(*backend, {1, columns}, first, &label, nullptr).sums.hits[1] == 1);
  }
}

TEST_CASE("a NaN shows in the loss and makes no row correct", "[loss]") {
  const auto backend = BackendUnderTest(1);
  const Result all = Softmax(*backend, {1, 3}, {NAN, NAN, NAN}, {0});
  CHECK(std::isnan(all.sums.loss));
  CHECK(all.sums.correct == 0);
  CHECK(all.sums.hits[2] == 0);
  const Result one = Softmax(*backend, {1, 3}, {NAN, 1, 2}, {2});
  CHECK(std::isnan(one.sums.loss));
  CHECK(one.sums.correct == 1);
  const std::vector<int32_t> label = {0};
  const Result single = Sigmoid(*backend, {1, 1}, {NAN}, &label, nullptr);
  CHECK(std::isnan(single.sums.loss));
  CHECK(single.sums.correct == 0);
}

TEST_CASE("huge logits do not overflow", "[loss]") {
  const auto backend = BackendUnderTest(1);
  const Result softmax = Softmax(*backend, {2, 2}, {3e38f, -3e38f, -1e4f, 1e4f}, {0, 0});
  CHECK(softmax.sums.loss == Approx(2e4));
  CHECK(softmax.gradient == std::vector<float>{0, 0, -0.5f, 0.5f});
  const std::vector<float> targets = {1, 0, 0, 1};
  const Result sigmoid = Sigmoid(*backend, {2, 2}, {1e30f, -1e30f, 200, -200}, nullptr, &targets);
  CHECK(sigmoid.sums.loss == Approx(400));
  CHECK(sigmoid.gradient == std::vector<float>{0, 0, 0.5f, -0.5f});
}

TEST_CASE("sigmoid cross entropy is summed over outputs and averaged in the gradient", "[loss]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const float spread = GENERATE(1.0f, 40.0f);
  for (const MatrixShape& s : Sampled(Shapes())) {
    CAPTURE(s.rows, s.columns, spread);
    const std::vector<float> z = RandomValues(s.size(), 3, spread);
    std::vector<float> targets = RandomValues(s.size(), 4);
    for (float& t : targets) t = t > 1 ? 1.0f : (t < -1 ? 0.25f : 0.0f);
    const Result got = Sigmoid(*backend, s, z, nullptr, &targets, s.rows % 2 == 1);
    double loss = 0, magnitude = 0;
    for (int64_t i = 0; i < s.size(); ++i) {
      const double e = std::exp(-std::fabs(z[i]));
      const double softplus = std::max<double>(z[i], 0) + std::log1p(e);
      loss += softplus - targets[i] * double{z[i]};
      magnitude += softplus + std::fabs(targets[i] * z[i]);
      const double p = z[i] < 0 ? e / (1 + e) : 1 / (1 + e);
      REQUIRE(std::fabs(got.gradient[i] - (p - targets[i]) / s.rows) <=
              8 * kRoundoff * (p + targets[i]) / s.rows + 1e-37);
    }
    REQUIRE(std::fabs(got.sums.loss - loss) <= 8 * kRoundoff * magnitude);
    CheckCounts(s, z, got.sums,
                [&](int64_t r, int64_t j) { return targets[r * s.columns + j] > 0.5f; });
    if (s.columns > 1) REQUIRE(got.sums.correct == got.sums.hits[0]);
  }
}

TEST_CASE("a label of sigmoid cross entropy equals its one-hot target", "[loss]") {
  const auto backend = BackendUnderTest(1);
  const MatrixShape s = GENERATE(MatrixShape{20, 33}, MatrixShape{3, 6143});
  const std::vector<float> z = RandomValues(s.size(), 3);
  std::vector<int32_t> labels(s.rows);
  std::vector<float> targets(s.size(), 0.0f);
  for (int64_t r = 0; r < s.rows; ++r) {
    labels[r] = static_cast<int32_t>(5 * r % s.columns);
    targets[r * s.columns + labels[r]] = 1;
  }
  const Result by_label = Sigmoid(*backend, s, z, &labels, nullptr),
               by_target = Sigmoid(*backend, s, z, nullptr, &targets);
  CHECK(by_label.gradient == by_target.gradient);
  CHECK(by_label.sums.loss == Approx(by_target.sums.loss).epsilon(1e-12));
  CHECK(by_label.sums.correct == by_target.sums.correct);
  CHECK(by_label.sums.hits[2] == by_target.sums.hits[2]);
  // Only of single labels.
  CHECK(by_label.sums.top_hits == TopHits(s, z, labels));
  CHECK(by_target.sums.top_hits == 0);
}

TEST_CASE("the loss of very many sigmoids neither overflows nor loses digits", "[loss]") {
  const auto backend = BackendUnderTest(1);
  // Each logarithm is of 2, and 2^300000 is no number.
  constexpr int64_t kColumns = 300000;
  const std::vector<int32_t> label = {7};
  const Result got =
      Sigmoid(*backend, {1, kColumns}, std::vector<float>(kColumns, 0.0f), &label, nullptr);
  CHECK(got.sums.loss == Approx(kColumns * std::log(2.0)).epsilon(1e-12));
  CHECK(got.gradient[6] == 0.5f);
  CHECK(got.gradient[7] == -0.5f);
  CHECK(got.gradient[kColumns - 1] == 0.5f);
}

TEST_CASE("a single sigmoid is right on its side of zero", "[loss]") {
  const auto backend = BackendUnderTest(1);
  const std::vector<int32_t> labels = {1, 0, 1, 0, 1};
  const Result got = Sigmoid(*backend, {5, 1}, {2, -3, -1, 4, 0}, &labels, nullptr);
  CHECK(got.sums.correct == 2);
  CHECK(got.sums.loss == Approx(std::log1p(std::exp(-2)) + std::log1p(std::exp(-3)) +
                                std::log1p(std::exp(1)) + std::log1p(std::exp(4)) + std::log(2)));
  CHECK(got.gradient[2] == Approx((1 / (1 + std::exp(1)) - 1) / 5));
}

}  // namespace tessera
