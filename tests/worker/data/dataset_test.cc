#include "worker/data/dataset.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace tessera {
namespace {

using Floats = std::vector<float>;
using Rows = std::vector<uint32_t>;

template <typename Values>
Table TableOf(Values values, int64_t features, Classes classes) {
  Table table;
  table.rows = static_cast<int64_t>(classes.size());
  table.features = features;
  table.values = std::move(values);
  table.labels = std::move(classes);
  return table;
}

Floats Features(const Dataset& data, const Rows& rows) {
  Floats out(rows.size() * data.inputs(), -99);
  BatchView view;
  view.features = out.data();
  data.FillBatch(rows, view);
  return out;
}

Floats Targets(const Dataset& data, const Rows& rows) {
  Floats out(rows.size() * data.outputs(), -99);
  BatchView view;
  view.targets = out.data();
  data.FillBatch(rows, view);
  return out;
}

const ModelEnds kSoftmax3{2, 3, false};

TEST_CASE("a batch has the rows asked for, in that order, repeated ones too", "[dataset]") {
  const Dataset data(TableOf(F32Values{1, 2, 3, 4, 5, 6}, 2, {2, 0, 1}), {}, kSoftmax3);
  REQUIRE(Features(data, {2, 0, 2}) == Floats{5, 6, 1, 2, 5, 6});
  std::vector<int32_t> classes(3);
  BatchView view;
  view.classes = classes.data();
  data.FillBatch({2, 0, 2}, view);
  REQUIRE(classes == std::vector<int32_t>{1, 2, 1});
  REQUIRE(Features(data, {}).empty());
}

TEST_CASE("several threads fill what one does", "[dataset]") {
  // Enough values for each of them to have some.
  constexpr int64_t kRows = 37, kInputs = 5003;
  U8Values bytes(kRows * kInputs);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 % 251);
  F32Values floats;
  for (const uint8_t byte : bytes) floats.push_back(byte);
  SparseValues sparse;
  for (int64_t row = 0; row < kRows; ++row) {
    sparse.feature.push_back(static_cast<uint32_t>(row * 101 % kInputs));
    sparse.value.push_back(static_cast<float>(row));
    sparse.begin.push_back(row + 1);
  }
  const Classes classes(std::vector<int32_t>(kRows, 1));
  Rows rows;
  for (uint32_t i = 0; i < 2 * kRows; ++i) rows.push_back(i * 5 % kRows);
  const auto check = [&](Table table) {
    const Dataset data(std::move(table), {{0.2}, {0.4}}, {kInputs, 3, false});
    const Floats want = Features(data, rows);
    for (const int threads : {2, 3, 16, 100}) {
      Floats got(want.size(), -99);
      BatchView view;
      view.features = got.data();
      data.FillBatch(rows, view, threads);
      REQUIRE(got == want);
    }
  };
  check(TableOf(std::move(bytes), kInputs, classes));
  check(TableOf(std::move(floats), kInputs, classes));
  check(TableOf(std::move(sparse), kInputs, classes));
}

TEST_CASE("u8 values are divided by 255 before they are normalised, others are not", "[dataset]") {
  const Dataset u8(TableOf(U8Values{0, 255, 51, 102}, 2, {0, 0}), {{0.2}, {0.4}}, kSoftmax3);
  const Floats got = Features(u8, {0, 1});
  const Floats want{-0.5f, 2.f, 0.f, 0.5f};
  for (size_t i = 0; i < want.size(); ++i) REQUIRE(got[i] == Approx(want[i]).margin(1e-7));
  const Dataset f32(TableOf(F32Values{0, 255, 51, 102}, 2, {0, 0}), {{51}, {102}}, kSoftmax3);
  REQUIRE(Features(f32, {0, 1}) == Floats{-0.5f, 2, 0, 0.5f});
}

TEST_CASE("each feature has its own constants and a constant feature becomes 0", "[dataset]") {
  Table table = TableOf(U8Values{10, 200, 30, 200}, 2, {0, 0});
  const Normalization normalization = *NormalizationOf(table);
  const Dataset data(std::move(table), normalization, kSoftmax3);
  const Floats got = Features(data, {0, 1});
  REQUIRE(got[0] == Approx(-1).epsilon(1e-6));
  REQUIRE(got[2] == Approx(1).epsilon(1e-6));
  REQUIRE(got[1] == 0);
  REQUIRE(got[3] == 0);
}

// Every value of every storage, against the formula in double, for sizes around those of vector
// registers.
TEST_CASE("filling a batch agrees with the formula for every size and storage", "[dataset]") {
  std::mt19937 random(17);
  for (const int64_t n : {1, 3, 7, 8, 15, 16, 17, 31, 64, 65, 1000}) {
    U8Values u8(3 * n);
    F32Values f32(3 * n);
    SparseValues sparse;
    for (int64_t i = 0; i < 3 * n; ++i) {
      u8[i] = static_cast<uint8_t>(random());
      f32[i] = random() % 2 == 0 ? 0 : static_cast<float>(random() % 1000) / 7;
      if (f32[i] != 0) {
        sparse.feature.push_back(static_cast<uint32_t>(i % n));
        sparse.value.push_back(f32[i]);
      }
      if ((i + 1) % n == 0) sparse.begin.push_back(static_cast<int64_t>(sparse.value.size()));
    }
    Normalization each{std::vector<double>(n), std::vector<double>(n)};
    for (int64_t j = 0; j < n; ++j) {
      each.mean[j] = (random() % 100) / 300.0;
      each.stddev[j] = (1 + random() % 100) / 100.0;
    }
    for (const Normalization& normalization :
         {Normalization{{0.286}, {0.353}}, Normalization(), each}) {
      const ModelEnds ends{n, 1, false};
      const Dataset a(TableOf(u8, n, {0, 0, 0}), normalization, ends);
      const Dataset b(TableOf(f32, n, {0, 0, 0}), normalization, ends);
      const Dataset c(TableOf(sparse, n, {0, 0, 0}), normalization, ends);
      const Rows rows{1, 2, 0};
      const Floats of_u8 = Features(a, rows), of_f32 = Features(b, rows),
                   of_sparse = Features(c, rows);
      REQUIRE(of_sparse == of_f32);
      for (int64_t i = 0; i < 3 * n; ++i) {
        const int64_t at = rows[i / n] * n + i % n;
        const size_t j = normalization.mean.size() == 1 ? 0 : i % n;
        CAPTURE(n, i);
        const auto want = [&](double x) {
          return (x - normalization.mean[j]) / normalization.stddev[j];
        };
        // Two roundings of the constants and two of the arithmetic; small differences of large
        // numbers keep the absolute error of the larger.
        REQUIRE(of_u8[i] ==
                Approx(want(u8[at] / 255.0)).epsilon(5e-7).margin(2e-7 / normalization.stddev[j]));
        REQUIRE(of_f32[i] ==
                Approx(want(f32[at])).epsilon(5e-7).margin(2e-7 / normalization.stddev[j]));
      }
    }
  }
}

SparseValues FewEntries() { return {{0, 2, 2, 3}, {0, 599, 7}, {1, -2, 5}}; }

TEST_CASE("a sparse batch has the stored entries of the rows asked for, scaled", "[dataset]") {
  const Dataset data(TableOf(FewEntries(), 600, {0, 1, 2}), {{0}, {0.5}}, {600, 3, false});
  REQUIRE(data.can_be_sparse());
  SparseBatch batch;
  BatchView view;
  view.sparse = &batch;
  data.FillBatch({2, 1, 0, 2}, view);
  REQUIRE(batch.begin == std::vector<int64_t>{0, 1, 1, 3, 4});
  REQUIRE(batch.column == std::vector<int32_t>{7, 0, 599, 7});
  REQUIRE(batch.value == Floats{10, 2, -4, 10});
  // The next batch replaces it.
  data.FillBatch({1}, view);
  REQUIRE(batch.begin == std::vector<int64_t>{0, 0});
  REQUIRE(batch.column.empty());
}

TEST_CASE("a sparse batch is the dense one without its zeros, constants of each feature too",
          "[dataset]") {
  Normalization each{std::vector<double>(600), std::vector<double>(600)};
  for (int j = 0; j < 600; ++j) each.stddev[j] = 1 + j % 7;
  const Dataset data(TableOf(FewEntries(), 600, {0, 1, 2}), each, {600, 3, false});
  const Rows rows{0, 2, 1};
  const Floats dense = Features(data, rows);
  SparseBatch batch;
  BatchView view;
  view.sparse = &batch;
  data.FillBatch(rows, view);
  Floats written_out(dense.size());
  for (size_t b = 0; b < rows.size(); ++b) {
    for (int64_t e = batch.begin[b]; e < batch.begin[b + 1]; ++e) {
      written_out[b * 600 + batch.column[e]] = batch.value[e];
    }
  }
  REQUIRE(written_out == dense);
}

TEST_CASE("rows are sparse where they are wide and nearly empty, and zeros stay zeros",
          "[dataset]") {
  const auto dataset = [](SparseValues values, int64_t features, double mean,
                          bool always_sparse = false) {
    Table table = TableOf(std::move(values), features, {0, 1, 2});
    table.always_sparse = always_sparse;
    return Dataset(std::move(table), {{mean}, {2}}, {features, 3, false});
  };
  REQUIRE(dataset(FewEntries(), 600, 0).sparse());
  REQUIRE(dataset(FewEntries(), 600, 0).row_entries_max() == 2);
  REQUIRE_FALSE(dataset(FewEntries(), 600, 0.1).sparse());
  REQUIRE_FALSE(dataset(FewEntries(), 600, 0.1).can_be_sparse());
  const SparseValues narrow = {{0, 1, 1, 1}, {8}, {1}};
  REQUIRE_FALSE(dataset(narrow, 9, 0).sparse());
  REQUIRE(dataset(narrow, 9, 0).can_be_sparse());
  REQUIRE(dataset(narrow, 9, 0, true).sparse());
  // An eighth of the 1,800 values.
  SparseValues full;
  for (int row = 0; row < 3; ++row) {
    for (uint32_t j = 0; j < 75; ++j) {
      full.feature.push_back(j);
      full.value.push_back(1);
    }
    full.begin.push_back(static_cast<int64_t>(full.value.size()));
  }
  REQUIRE_FALSE(dataset(full, 600, 0).sparse());
  const Dataset written_out(TableOf(F32Values{1, 2, 3}, 1, {0, 1, 2}), {}, {1, 3, false});
  REQUIRE_FALSE(written_out.can_be_sparse());
}

TEST_CASE("sigmoid targets of single classes are one-hot, and the class itself for one output",
          "[dataset]") {
  const Dataset several(TableOf(F32Values{0, 0, 0}, 1, {2, 0, 1}), {}, ModelEnds{1, 3, true});
  REQUIRE(Targets(several, {0, 2}) == Floats{0, 0, 1, 0, 1, 0});
  const Dataset one(TableOf(F32Values{0, 0, 0}, 1, {1, 0, 1}), {}, ModelEnds{1, 1, true});
  REQUIRE(Targets(one, {0, 1, 2}) == Floats{1, 0, 1});
}

TEST_CASE("sigmoid targets of sets have a one for each class of the row", "[dataset]") {
  Table table = TableOf(F32Values{0, 0, 0}, 1, {0, 0, 0});
  table.labels = ClassSets{{0, 2, 2, 3}, {0, 2, 1}};
  const Dataset data(std::move(table), {}, ModelEnds{1, 3, true});
  REQUIRE_FALSE(data.has_classes());
  REQUIRE(Targets(data, {2, 1, 0}) == Floats{0, 1, 0, 0, 0, 0, 1, 0, 1});
}

}  // namespace
}  // namespace tessera
