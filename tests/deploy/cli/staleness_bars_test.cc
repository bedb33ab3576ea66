#include "deploy/cli/staleness_bars.h"

#include <algorithm>

#include <catch2/catch.hpp>

namespace tessera {
namespace {

Staleness Of(std::vector<uint64_t> histogram) {
  Staleness staleness;
  for (uint64_t count : histogram) staleness.pushes += count;
  staleness.histogram = std::move(histogram);
  return staleness;
}

TEST_CASE("each entry has a bar and its share of all pushes", "[cli][staleness]") {
  CHECK(StalenessBars(Of({30, 60, 0, 10}), 80) == "0 ##### 30%  1 ########## 60%  2 0%  3 ## 10%");
}

TEST_CASE("bars get shorter before entries are put together", "[cli][staleness]") {
  const Staleness staleness = Of({30, 60, 10, 0, 0, 0, 0, 1});
  CHECK(StalenessBars(staleness, 60) ==
        "0 ## 30%  1 ### 59%  2 # 10%  3 0%  4 0%  5 0%  6 0%  7 # 1%");
  CHECK(StalenessBars(staleness, 30) == "0-3 ########## 99%  4-7 # 1%");
}

TEST_CASE("the entries that nobody reached are not shown before the first", "[cli][staleness]") {
  std::vector<uint64_t> histogram(31);
  histogram[29] = 3;
  histogram[30] = 1;
  CHECK(StalenessBars(Of(histogram), 80) == "29 ########## 75%  30 #### 25%");
}

TEST_CASE("a share that is small but not nothing does not read 0%", "[cli][staleness]") {
  CHECK(StalenessBars(Of({1000, 1}), 80) == "0 ########## 100%  1 # <1%");
}

TEST_CASE("the last entry of a full histogram has no upper end", "[cli][staleness]") {
  std::vector<uint64_t> histogram(kStalenessEntries);
  histogram[kStalenessEntries - 1] = 1;
  CHECK(StalenessBars(Of(histogram), 80) == "64+ ########## 100%");
  histogram[0] = 1;
  CHECK(StalenessBars(Of(histogram), 32) == "0-63 ###### 50%  64+ ###### 50%");
}

TEST_CASE("bars are never wider than what there is, and empty without pushes", "[cli][staleness]") {
  const Staleness wide = Of(std::vector<uint64_t>(kStalenessEntries, 1000000007));
  for (int width = 0; width < 400; ++width) {
    CHECK(static_cast<int>(StalenessBars(wide, width).size()) <= width);
  }
  CHECK(!StalenessBars(wide, 22).empty());
  CHECK(StalenessBars(Staleness(), 80).empty());
}

}  // namespace
}  // namespace tessera
