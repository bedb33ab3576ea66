#include "worker/data/normalization.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace tessera {
namespace {

Table Of(const std::vector<float>& values, int64_t features) {
  Table table;
  table.rows = static_cast<int64_t>(values.size()) / features;
  table.features = features;
  table.values = F32Values(values);
  return table;
}

// The same rows without their zeros.
Table Sparse(const Table& dense) {
  SparseValues sparse;
  const auto& values = std::get<F32Values>(dense.values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) {
      sparse.feature.push_back(static_cast<uint32_t>(i % dense.features));
      sparse.value.push_back(values[i]);
    }
    if ((i + 1) % dense.features == 0) {
      sparse.begin.push_back(static_cast<int64_t>(sparse.value.size()));
    }
  }
  Table table;
  table.rows = dense.rows;
  table.features = dense.features;
  table.values = std::move(sparse);
  return table;
}

TEST_CASE("mean and population standard deviation are those of each feature", "[normalization]") {
  const Normalization n = *NormalizationOf(Of({1, 10, 3, 30, 5, 20}, 2));
  REQUIRE(n.mean == std::vector<double>{3, 20});
  REQUIRE(n.stddev[0] == Approx(std::sqrt(8.0 / 3)).epsilon(1e-15));
  REQUIRE(n.stddev[1] == Approx(std::sqrt(200.0 / 3)).epsilon(1e-15));
}

TEST_CASE("u8 values count as parts of 255", "[normalization]") {
  Table table;
  table.rows = 2;
  table.features = 2;
  table.values = U8Values{0, 255, 51, 255};
  const Normalization n = *NormalizationOf(table);
  REQUIRE(n.mean[0] == Approx(0.1).epsilon(1e-15));
  REQUIRE(n.stddev[0] == Approx(0.1).epsilon(1e-15));
  REQUIRE(n.mean[1] == 1);
  REQUIRE(n.stddev[1] == 1);
}

TEST_CASE("a constant feature is only centred, even where its mean would be rounded",
          "[normalization]") {
  // Three times 0.1f and a sum of 0.1f over 1,000,003 rows do not divide back exactly.
  const Normalization n = *NormalizationOf(Of(std::vector<float>(1000003, 0.1f), 1));
  REQUIRE(n.mean[0] == double{0.1f});
  REQUIRE(n.stddev[0] == 1);
  REQUIRE(NormalizationOf(Of({0, 1e-42f}, 1))->stddev[0] == 1);
}

TEST_CASE("a mean far from zero does not drown the deviation", "[normalization]") {
  const Normalization n = *NormalizationOf(Of({16777214, 16777216, 16777214, 16777216}, 1));
  REQUIRE(n.mean[0] == 16777215);
  REQUIRE(n.stddev[0] == 1);
}

TEST_CASE("sparse rows have the constants of the same rows written out", "[normalization]") {
  std::mt19937 random(3);
  std::vector<float> values(50 * 7);
  for (float& v : values) v = random() % 3 == 0 ? static_cast<float>(random() % 100) - 50 : 0;
  for (int i = 0; i < 50; ++i) values[i * 7 + 2] = 0;
  for (int i = 0; i < 50; ++i) values[i * 7 + 4] = 0.3f;
  const Table dense = Of(values, 7);
  const Normalization want = *NormalizationOf(dense), got = *NormalizationOf(Sparse(dense));
  for (int j = 0; j < 7; ++j) {
    CAPTURE(j);
    REQUIRE(got.mean[j] == Approx(want.mean[j]).epsilon(1e-12).margin(1e-12));
    REQUIRE(got.stddev[j] == Approx(want.stddev[j]).epsilon(1e-12));
  }
}

}  // namespace
}  // namespace tessera
