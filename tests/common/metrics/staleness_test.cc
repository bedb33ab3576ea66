#include "common/metrics/staleness.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

void AddServer(v1::JobStatus* status, const std::vector<uint64_t>& histogram, uint64_t sum,
               uint64_t max) {
  v1::ServerCounters& counters = *status->add_servers()->mutable_counters();
  for (uint64_t count : histogram) counters.add_staleness_histogram(count);
  counters.set_staleness_sum(sum);
  counters.set_staleness_max(max);
}

TEST_CASE("staleness sums over servers, whatever the lengths of their histograms", "[metrics]") {
  v1::JobStatus status;
  AddServer(&status, {3, 1}, 1, 1);
  AddServer(&status, {}, 0, 0);
  AddServer(&status, {1, 0, 0, 3, 0, 0}, 9, 3);
  const Staleness staleness = StalenessOf(status);
  CHECK(staleness.histogram == std::vector<uint64_t>{4, 1, 0, 3});
  CHECK(staleness.pushes == 8);
  CHECK(staleness.max == 3);
  CHECK(staleness.mean() == 10.0 / 8);
}

TEST_CASE("without pushes staleness is empty and its mean is 0", "[metrics]") {
  v1::JobStatus status;
  CHECK(StalenessOf(status).mean() == 0);
  AddServer(&status, {0, 0}, 0, 0);
  CHECK(StalenessOf(status).histogram.empty());
}

TEST_CASE("a histogram that is too long ends in an entry for all that is above", "[metrics]") {
  v1::JobStatus status;
  AddServer(&status, std::vector<uint64_t>(100, 1), 4950, 99);
  const Staleness staleness = StalenessOf(status);
  REQUIRE(staleness.histogram.size() == kStalenessEntries);
  CHECK(staleness.histogram.back() == 100 - (kStalenessEntries - 1));
  CHECK(staleness.pushes == 100);
}

}  // namespace
}  // namespace tessera
