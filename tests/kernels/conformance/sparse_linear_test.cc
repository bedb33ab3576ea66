// Products with sparse rows against the same backend's dense ones, and what they leave alone.
//
// Each dense entry may be off by (terms + 2) roundings of the sum of its terms' magnitudes
// (linear_test.cc), and so may each sparse one; terms that are 0 add nothing to either.
#include <cmath>
#include <utility>

#include "common/rule/optimizer.h"
#include "proto/job.pb.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

// The rows of one batch as CSR and as a dense matrix.
struct SparseMatrix {
  SparseMatrix(const LinearShape& shape, double density, unsigned seed, int64_t skipped = 3)
      : inputs(shape.inputs), dense(shape.rows * shape.inputs) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    // Entries of other rows before these.
    for (int64_t i = 0; i < skipped; ++i) Add(0, 99);
    begin.push_back(column.size());
    for (int64_t row = 0; row < shape.rows; ++row) {
      // Every fifth row is empty.
      for (int64_t c = 0; c < shape.inputs && row % 5 != 3; ++c) {
        if (random() % 100000 >= density * 100000) continue;
        dense[row * shape.inputs + c] = normal(random);
        Add(c, dense[row * shape.inputs + c]);
      }
      begin.push_back(column.size());
    }
  }
  void Add(int64_t c, float v) {
    column.push_back(static_cast<int32_t>(c));
    value.push_back(v);
  }
  SparseRows rows() const { return {begin.data(), column.data(), value.data()}; }
  std::vector<bool> present() const {
    std::vector<bool> is(inputs);
    for (int64_t e = begin.front(); e < begin.back(); ++e) is[column[e]] = true;
    return is;
  }

  int64_t inputs;
  std::vector<int64_t> begin;
  std::vector<int32_t> column;
  std::vector<float> value;
  std::vector<float> dense;
};

const std::vector<std::pair<LinearShape, double>>& Cases() {
  static const std::vector<std::pair<LinearShape, double>> cases = {
      {{0, 3, 5}, 1},        {{4, 0, 5}, 1},        {{4, 3, 0}, 1},          {{0, 0, 0}, 1},
      {{1, 1, 1}, 1},        {{1, 1, 1}, 0},        {{5, 7, 1}, 0.5},        {{7, 63, 15}, 0.3},
      {{8, 64, 16}, 1},      {{9, 65, 17}, 0.2},    {{33, 31, 10}, 0},       {{16, 128, 31}, 1},
      {{77, 131, 257}, 1},   {{3, 1000, 3}, 0.01},  {{128, 5000, 64}, 0.01}, {{129, 65, 1}, 0.5},
      {{2, 70000, 33}, 0.5}, {{200, 784, 101}, 0.1}};
  return cases;
}

// Entries where got is further from want than `terms` terms of that magnitude allow.
int64_t Wrong(const std::vector<float>& got, const std::vector<float>& want,
              const std::vector<float>& magnitude, int64_t terms) {
  REQUIRE(got.size() == want.size());
  int64_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double limit = 2 * (terms + 3) * kRoundoff * magnitude[i];
    wrong += std::fabs(double{got[i]} - double{want[i]}) <= limit ? 0 : 1;
  }
  return wrong;
}

std::vector<float> Magnitudes(std::vector<float> values) {
  for (float& value : values) value = std::fabs(value);
  return values;
}

// The dense products of the same backend, and of the magnitudes.
struct DenseProducts {
  DenseProducts(Backend& backend, const LinearShape& s, const std::vector<float>& x,
                const std::vector<float>& w, const std::vector<float>& bias,
                const std::vector<float>& dy) {
    const DeviceArray<float> dev_x(backend, x), dev_w(backend, w), dev_bias(backend, bias),
        dev_dy(backend, dy);
    DeviceArray<float> dev_y(backend, s.rows * s.outputs), dev_dw(backend, s.outputs * s.inputs);
    backend.linear().Forward(s, dev_x.data(), dev_w.data(),
                             bias.empty() ? nullptr : dev_bias.data(), dev_y.data());
    backend.linear().WeightGradient(s, dev_x.data(), dev_dy.data(), WriteMode::kOverwrite,
                                    dev_dw.data());
    y = dev_y.Read();
    dw = dev_dw.Read();
  }
  std::vector<float> y, dw;
};

void CheckShape(Backend& backend, const LinearShape& s, double density, int64_t shift) {
  CAPTURE(s.rows, s.inputs, s.outputs, density, shift);
  const SparseMatrix x(s, density, 1);
  const std::vector<float> w = RandomValues(s.outputs * s.inputs, 2),
                           dy = RandomValues(s.rows * s.outputs, 3),
                           bias = RandomValues(s.outputs, 4);
  const DenseProducts want(backend, s, x.dense, w, bias, dy);
  const DenseProducts size(backend, s, Magnitudes(x.dense), Magnitudes(w), Magnitudes(bias),
                           Magnitudes(dy));
  const DenseProducts no_bias(backend, s, x.dense, w, std::vector<float>(s.outputs), dy);
  const DeviceArray<float> dev_w(backend, w, shift), dev_bias(backend, bias, shift),
      dev_dy(backend, dy, shift);
  DeviceArray<float> y(backend, std::vector<float>(s.rows * s.outputs, NAN), shift);
  SparseLinearKernel& kernel = backend.sparse_linear();

  kernel.Forward(s, x.rows(), dev_w.data(), dev_bias.data(), y.data());
  CHECK(Wrong(y.Read(), want.y, size.y, s.inputs) == 0);
  kernel.Forward(s, x.rows(), dev_w.data(), nullptr, y.data());
  CHECK(Wrong(y.Read(), no_bias.y, size.y, s.inputs) == 0);

  DeviceArray<float> dw(backend, s.outputs * s.inputs, shift);
  TouchedColumns touched;
  kernel.WeightGradient(s, x.rows(), dev_dy.data(), WriteMode::kOverwrite, &touched, dw.data());
  const std::vector<float> gradient = dw.Read();
  CHECK(Wrong(gradient, want.dw, size.dw, s.rows) == 0);

  // A second batch comes on top, one rounding for each entry.
  const SparseMatrix more(s, density, 5);
  kernel.WeightGradient(s, more.rows(), dev_dy.data(), WriteMode::kAdd, &touched, dw.data());
  DeviceArray<float> dw_more(backend, s.outputs * s.inputs, shift);
  TouchedColumns touched_more;
  kernel.WeightGradient(s, more.rows(), dev_dy.data(), WriteMode::kOverwrite, &touched_more,
                        dw_more.data());
  std::vector<float> want_sum = dw_more.Read();
  for (size_t i = 0; i < want_sum.size(); ++i) want_sum[i] += gradient[i];
  CHECK(dw.Read() == want_sum);

  // One rounding for the product and one for the sum, on the gradient as it was rounded before.
  DeviceArray<float> moved(backend, w, shift);
  kernel.AddWeightGradient(s, x.rows(), dev_dy.data(), -0.3f, moved.data());
  std::vector<float> want_moved = w;
  const std::vector<bool> present = x.present();
  for (size_t i = 0; i < w.size(); ++i) {
    if (present[i % s.inputs]) want_moved[i] += -0.3f * gradient[i];
  }
  CHECK(moved.Read() == want_moved);
}

}  // namespace

TEST_CASE("products with sparse rows are those with the same rows written out", "[sparse_linear]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  for (const auto& [shape, density] : Sampled(Cases())) CheckShape(*backend, shape, density, 0);
  for (const auto& [shape, density] : Sampled(Cases())) CheckShape(*backend, shape, density, 1);
}

TEST_CASE("a gradient is zero outside the columns of its own batch, whatever came before",
          "[sparse_linear]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const LinearShape s{20, 300, 37};
  const std::vector<float> dy = RandomValues(s.rows * s.outputs, 3);
  const DeviceArray<float> dev_dy(*backend, dy);
  DeviceArray<float> dw(*backend, s.outputs * s.inputs);
  TouchedColumns touched;
  // All columns, some, none, some again; and no rows at all.
  unsigned seed = 0;
  for (const double density : {1.0, 0.02, 0.0, 0.05, 0.01}) {
    const SparseMatrix x(s, density, ++seed);
    backend->sparse_linear().WeightGradient(s, x.rows(), dev_dy.data(), WriteMode::kOverwrite,
                                            &touched, dw.data());
    DeviceArray<float> fresh(*backend, s.outputs * s.inputs);
    TouchedColumns none;
    backend->sparse_linear().WeightGradient(s, x.rows(), dev_dy.data(), WriteMode::kOverwrite,
                                            &none, fresh.data());
    CHECK(dw.Read() == fresh.Read());
    CHECK(touched.columns == none.columns);
  }
  const SparseMatrix empty({0, s.inputs, s.outputs}, 1, 9);
  backend->sparse_linear().WeightGradient({0, s.inputs, s.outputs}, empty.rows(), dev_dy.data(),
                                          WriteMode::kOverwrite, &touched, dw.data());
  CHECK(dw.Read() == std::vector<float>(s.outputs * s.inputs));
  CHECK(touched.columns.empty());
}

TEST_CASE("what batches add is all cleared by the next that overwrites", "[sparse_linear]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const LinearShape s{20, 300, 37};
  const DeviceArray<float> dev_dy(*backend, RandomValues(s.rows * s.outputs, 3));
  const auto gradient = [&](unsigned seed, WriteMode mode, TouchedColumns* touched,
                            const DeviceArray<float>& dw) {
    const SparseMatrix x(s, 0.02, seed);
    backend->sparse_linear().WeightGradient(s, x.rows(), dev_dy.data(), mode, touched, dw.data());
    return x.present();
  };
  DeviceArray<float> dw(*backend, s.outputs * s.inputs), fresh(*backend, s.outputs * s.inputs);
  TouchedColumns touched, none;
  std::vector<bool> present = gradient(1, WriteMode::kOverwrite, &touched, dw);
  for (const unsigned seed : {2, 3}) {
    const std::vector<bool> more = gradient(seed, WriteMode::kAdd, &touched, dw);
    for (size_t c = 0; c < present.size(); ++c) present[c] = present[c] || more[c];
  }
  std::vector<int32_t> want;
  for (size_t c = 0; c < present.size(); ++c) {
    if (present[c]) want.push_back(static_cast<int32_t>(c));
  }
  CHECK(touched.columns == want);
  gradient(4, WriteMode::kOverwrite, &touched, dw);
  gradient(4, WriteMode::kOverwrite, &none, fresh);
  CHECK(dw.Read() == fresh.Read());
}

TEST_CASE("only the columns of the batch are written in a gradient", "[sparse_linear]") {
  const auto backend = BackendUnderTest(1);
  const LinearShape s{20, 300, 37};
  const SparseMatrix x(s, 0.01, 1);
  const DeviceArray<float> dev_dy(*backend, RandomValues(s.rows * s.outputs, 3));
  // What is there does not belong there: a kernel that cleared all of it would show.
  DeviceArray<float> dw(*backend, std::vector<float>(s.outputs * s.inputs, 7));
  TouchedColumns touched;
  backend->sparse_linear().WeightGradient(s, x.rows(), dev_dy.data(), WriteMode::kOverwrite,
                                          &touched, dw.data());
  const std::vector<float> got = dw.Read();
  const std::vector<bool> present = x.present();
  int64_t kept = 0, other = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!present[i % s.inputs]) (got[i] == 7 ? kept : other) += 1;
  }
  CHECK(kept > 0);
  CHECK(other == 0);
}

TEST_CASE("products with sparse rows have the same bits for any number of threads",
          "[sparse_linear][determinism]") {
  const LinearShape s{128, 3000, 300};
  const SparseMatrix x(s, 0.05, 1);
  const std::vector<float> w = RandomValues(s.outputs * s.inputs, 2),
                           dy = RandomValues(s.rows * s.outputs, 3);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    const auto backend = BackendUnderTest(threads);
    const DeviceArray<float> dev_dy(*backend, dy);
    DeviceArray<float> dev_w(*backend, w), y(*backend, s.rows * s.outputs);
    backend->sparse_linear().AddWeightGradient(s, x.rows(), dev_dy.data(), 0.1f, dev_w.data());
    backend->sparse_linear().Forward(s, x.rows(), dev_w.data(), nullptr, y.data());
    std::vector<float> all = dev_w.Read();
    for (const float value : y.Read()) all.push_back(value);
    results.push_back(std::move(all));
  }
  CHECK(results[1] == results[0]);
  CHECK(results[2] == results[0]);
}

TEST_CASE("adding minus the rate times the gradient is plain sgd's step to the bit",
          "[sparse_linear]") {
  const auto backend = BackendUnderTest(1);
  const LinearShape s{50, 400, 40};
  const SparseMatrix x(s, 0.03, 1);
  const DeviceArray<float> dev_dy(*backend, RandomValues(s.rows * s.outputs, 3));
  const std::vector<float> w = RandomValues(s.outputs * s.inputs, 2);
  DeviceArray<float> by_columns(*backend, w), by_rule(*backend, w), dw(*backend, w.size());
  backend->sparse_linear().AddWeightGradient(s, x.rows(), dev_dy.data(), -0.1f, by_columns.data());
  TouchedColumns touched;
  backend->sparse_linear().WeightGradient(s, x.rows(), dev_dy.data(), WriteMode::kOverwrite,
                                          &touched, dw.data());
  v1::Optimizer optimizer;
  optimizer.mutable_sgd()->set_learning_rate(0.1);
  const DeviceArray<OptimizerNumbers> numbers(*backend, {NumbersOf(optimizer, {})});
  backend->vector().MakeOptimizer(optimizer)->Step(numbers.data(), w.size(), dw.data(), nullptr,
                                                   by_rule.data(), nullptr);
  CHECK(by_columns.Read() == by_rule.Read());
}

}  // namespace tessera
