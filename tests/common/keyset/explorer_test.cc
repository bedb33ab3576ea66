#include "common/keyset/explorer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "common/keyset/core_share.h"

namespace tessera {
namespace {

EntrySet Of(int64_t size, const std::vector<int64_t>& places) {
  std::vector<uint64_t> words((size + 63) / 64);
  for (const int64_t place : places) words[place / 64] |= uint64_t{1} << place % 64;
  return EntrySet(size, words);
}

EntrySet EveryThird(int64_t size) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < size; i += 3) places.push_back(i);
  return Of(size, places);
}

ExplorerPlace Place(uint64_t rank, uint64_t exchange, uint64_t shard = 0) {
  return {7, Rank(rank), Exchange(exchange), ShardId(shard)};
}

int64_t Common(const EntrySet& a, const EntrySet& b) {
  int64_t common = 0;
  for (const int64_t place : a.places()) common += b.Contains(place);
  return common;
}

TEST_CASE("explorers are those of the documented draws", "[explorer]") {
  const EntrySet core = Of(20, {0, 5, 6, 19});
  CHECK(DrawExplorer(Place(1, 3), core, 5).places() == std::vector<int64_t>{3, 8, 9, 12, 14});
  CHECK(DrawExplorer(Place(2, 3, 1), core, 12).places() ==
        std::vector<int64_t>{1, 3, 7, 8, 9, 10, 11, 12, 13, 16, 17, 18});
}

TEST_CASE("an explorer has its number of entries, and none of the core", "[explorer]") {
  for (const int64_t size : {1, 64, 130, 3000}) {
    const EntrySet core = EveryThird(size);
    const int64_t outside = size - core.count();
    for (const int64_t count :
         {int64_t{0}, outside / 5, outside / 2, outside - outside / 5, outside}) {
      const EntrySet explorer = DrawExplorer(Place(0, 1), core, count);
      CAPTURE(size, count);
      CHECK(explorer.size() == size);
      CHECK(explorer.count() == count);
      CHECK(Common(explorer, core) == 0);
    }
  }
}

// Each entry is in `draws` explorers with probability p: the sum of squared deviations over the
// variance has the entries' number as its mean, and its deviation is sqrt(2 n (n-1)/n) or so.
TEST_CASE("every entry outside the core is as likely as any other", "[explorer]") {
  const int64_t size = 600;
  const EntrySet core = EveryThird(size);
  const int64_t outside = size - core.count();
  for (const int64_t count : {40, 330}) {
    constexpr int kDraws = 2000;
    std::vector<int> drawn(size);
    for (int e = 1; e <= kDraws; ++e) {
      for (const int64_t place : DrawExplorer(Place(0, e), core, count).places()) ++drawn[place];
    }
    const double p = static_cast<double>(count) / outside;
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) {
      if (!core.Contains(i)) sum += std::pow(drawn[i] - kDraws * p, 2) / (kDraws * p * (1 - p));
    }
    CAPTURE(count, sum);
    CHECK(std::abs(sum - outside) < 5 * std::sqrt(2.0 * outside));
  }
}

// Two independent draws of k of m have k^2/m entries in common on average.
TEST_CASE("explorers of other workers, exchanges and servers are uncorrelated", "[explorer]") {
  const int64_t size = 3000;
  const EntrySet core = EveryThird(size);
  const double m = static_cast<double>(size - core.count());
  const int64_t k = 300;
  const double mean = k * k / m;
  const double variance = mean * (1 - k / m) * (1 - k / m) * m / (m - 1);
  const auto close = [&](double sum, int draws) {
    return std::abs(sum - draws * mean) < 5 * std::sqrt(draws * variance);
  };
  constexpr int kDraws = 400;
  double workers = 0, exchanges = 0, servers = 0;
  for (int e = 1; e <= kDraws; ++e) {
    const EntrySet mine = DrawExplorer(Place(0, e), core, k);
    workers += Common(mine, DrawExplorer(Place(1, e), core, k));
    exchanges += Common(mine, DrawExplorer(Place(0, e + 1), core, k));
    servers += Common(mine, DrawExplorer(Place(0, e, 1), core, k));
  }
  CAPTURE(workers / kDraws, exchanges / kDraws, servers / kDraws, mean);
  CHECK(close(workers, kDraws));
  CHECK(close(exchanges, kDraws));
  CHECK(close(servers, kDraws));
}

TEST_CASE("servers' explorers together are at most (alpha - beta) n", "[explorer]") {
  const CoreShare share{0.3, 0.1, 10, 0};
  CHECK(CoreCount(share, 1000) == 100);
  CHECK(CoreCount({0.3, 0.1, 1, 0}, 30) == 3);
  int64_t sum = 0;
  for (const auto& [owned, core] :
       std::vector<std::pair<int64_t, int64_t>>{{333, 90}, {333, 10}, {334, 0}}) {
    const int64_t count = ExplorerCount(share, 1000, owned, core);
    CHECK(count == 200 * (owned - core) / 900);
    sum += count;
  }
  CHECK(sum <= 200);
  CHECK(sum > 197);
  // All is core, or all is moved.
  CHECK(ExplorerCount({1, 1, 1, 0}, 1000, 500, 500) == 0);
  CHECK(ExplorerCount({1, 0, 1, 0}, 1000, 500, 0) == 500);
  CHECK(ExplorerCount({0.1, 0.1, 1, 0}, 1000, 500, 50) == 0);
}

TEST_CASE("a core is for its number of exchanges, of which the last pushes all", "[explorer]") {
  const CoreShare share{0.3, 0.1, 3, 0};
  const std::vector<uint64_t> cores = {0, 0, 0, 1, 1, 1, 2};
  for (uint64_t e = 1; e <= cores.size(); ++e) {
    CHECK(CoreOf(share, e) == cores[e - 1]);
    CHECK(PushesAll(share, e) == (e % 3 == 0));
  }
}

}  // namespace
}  // namespace tessera
