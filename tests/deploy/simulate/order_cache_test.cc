// Workers that share their orders read the same rows as workers that do not.
#include "worker/data/order_cache.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "worker/data/order.h"

namespace tessera {
namespace {

std::vector<uint32_t> RowsOf(EpochOrder* order) {
  std::vector<uint32_t> rows;
  for (int64_t step = 0; step < order->steps(); ++step) {
    for (const uint32_t row : order->Rows(step)) rows.push_back(row);
  }
  return rows;
}

TEST_CASE("a shared order gives every worker the rows of an order of its own", "[order]") {
  const Partition partition =
      GENERATE(Partition::kGlobal, Partition::kShard, Partition::kFull, Partition::kLocal);
  constexpr int64_t kParts = 3;
  OrderCache cache;
  std::vector<EpochOrder> shared;
  std::vector<EpochOrder> own;
  for (int64_t k = 0; k < kParts; ++k) {
    shared.push_back(EpochOrder({partition, 5, 1000, 7, &cache}));
    own.push_back(EpochOrder({partition, 5, 1000, 7, nullptr}));
  }
  // Epochs come late and twice, and more of them than the cache holds.
  for (const uint64_t epoch : {0, 1, 2, 3, 4, 5, 0, 6, 5}) {
    for (int64_t k = 0; k < kParts; ++k) {
      for (const bool late : {false, true}) {
        EpochPlace place;
        place.epoch = epoch;
        place.rank = Rank(k);
        place.part = late ? kParts : k;
        place.parts = kParts;
        REQUIRE(shared[k].Begin(place).ok());
        REQUIRE(own[k].Begin(place).ok());
        REQUIRE(RowsOf(&shared[k]) == RowsOf(&own[k]));
      }
    }
  }
}

TEST_CASE("an order is sorted once while it is in the cache", "[order]") {
  OrderCache cache;
  int sorted = 0;
  const auto sort = [&sorted] {
    ++sorted;
    return std::make_shared<std::vector<uint32_t>>(1, sorted);
  };
  CHECK(cache.Get({0, 0, 1}, sort)->front() == 1);
  CHECK(cache.Get({1, 0, 1}, sort)->front() == 2);
  CHECK(cache.Get({0, 0, 1}, sort)->front() == 1);
  CHECK(cache.Get({0, 1, 2}, sort)->front() == 3);
  for (uint64_t epoch = 10; epoch < 14; ++epoch) cache.Get({epoch, 0, 1}, sort);
  CHECK(sorted == 7);
  CHECK(cache.Get({0, 0, 1}, sort)->front() == 8);
}

}  // namespace
}  // namespace tessera
