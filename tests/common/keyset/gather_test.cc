#include "common/keyset/gather.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

namespace tessera {
namespace {

std::vector<GatherPath> Paths() {
  std::vector<GatherPath> paths = {GatherPath::kScalar};
  if (BestGatherPath() >= GatherPath::kAvx2) paths.push_back(GatherPath::kAvx2);
  if (BestGatherPath() >= GatherPath::kAvx512) paths.push_back(GatherPath::kAvx512);
  return paths;
}

// Memory that ends where it says, so that an access beyond it is seen under a sanitizer, and marks
// around it that show a store.
struct Guarded {
  explicit Guarded(int64_t size) : all(size + 2, kMark) {}
  float* data() { return all.data() + 1; }
  bool marks_stand() const { return all.front() == kMark && all.back() == kMark; }
  static constexpr float kMark = 12345.5f;
  std::vector<float> all;
};

struct Case {
  int64_t width;
  std::vector<int32_t> columns;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  std::mt19937_64 random(5);
  for (const double density : {0.0, 0.01, 0.04, 0.125, 0.5, 0.9, 1.0}) {
    for (int i = 0; i < 60; ++i) {
      Case c;
      c.width = 1 + static_cast<int64_t>(random() % (i < 30 ? 70 : 700));
      for (int32_t column = 0; column < c.width; ++column) {
        if (std::uniform_real_distribution<double>(0, 1)(random) < density) {
          c.columns.push_back(column);
        }
      }
      cases.push_back(c);
    }
  }
  // A run in the middle; only the first; only the last; all but one.
  cases.push_back({40, {7, 8, 9, 10}});
  cases.push_back({33, {0}});
  cases.push_back({33, {32}});
  cases.push_back({17, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16}});
  return cases;
}

TEST_CASE("every path gathers the columns and writes nothing else", "[gather]") {
  for (const Case& c : Cases()) {
    Guarded row(c.width);
    for (int64_t i = 0; i < c.width; ++i) row.data()[i] = static_cast<float>(i) + 0.25f;
    for (const GatherPath path : Paths()) {
      const ColumnSet set(c.columns, c.width, path);
      const int64_t size = static_cast<int64_t>(c.columns.size());
      REQUIRE(set.size() == size);
      REQUIRE(set.is_whole() == (size == c.width));
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, size},
                                       {0, size / 2},
                                       {size / 3, size},
                                       {size / 3, size / 2},
                                       {size, size}}) {
        if (begin > end) continue;
        Guarded out(end - begin);
        set.Gather(row.data(), begin, end, out.data());
        REQUIRE(out.marks_stand());
        for (int64_t i = begin; i < end; ++i) {
          REQUIRE(out.data()[i - begin] == static_cast<float>(c.columns[i]) + 0.25f);
        }
      }
    }
  }
}

TEST_CASE("every path scatters to the columns and leaves the others", "[gather]") {
  for (const Case& c : Cases()) {
    const int64_t size = static_cast<int64_t>(c.columns.size());
    Guarded values(size);
    for (int64_t i = 0; i < size; ++i) values.data()[i] = -1.0f - static_cast<float>(i);
    std::vector<float> want(c.width);
    for (int64_t i = 0; i < c.width; ++i) want[i] = static_cast<float>(i);
    std::vector<float> before = want;
    for (int64_t i = 0; i < size; ++i) want[c.columns[i]] = values.data()[i];
    for (const GatherPath path : Paths()) {
      Guarded row(c.width);
      std::memcpy(row.data(), before.data(), c.width * sizeof(float));
      ColumnSet(c.columns, c.width, path).Scatter(values.data(), row.data());
      REQUIRE(row.marks_stand());
      REQUIRE(std::memcmp(row.data(), want.data(), c.width * sizeof(float)) == 0);
    }
  }
}

}  // namespace
}  // namespace tessera
