// Which keys a worker's exchanges have where the machine lacks what draws them ahead. (What they are is in
// tests/worker/rpc/core_exchange_test.cc.)
#include "worker/exchange/exchange_keys.h"

#include <pthread.h>

#include <catch2/catch.hpp>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "common/base/ids.h"
#include "common/keyset/sparse_keys.h"
#include "common/layout/parameters.h"

namespace tessera {
namespace {

// While there is one, no thread can be started: its stack would be larger than all memory.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    REQUIRE(pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t huge;
    REQUIRE(pthread_attr_init(&huge) == 0);
    REQUIRE(pthread_attr_setstacksize(&huge, size_t{1} << 60) == 0);
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_CASE("where no thread can be started keys are drawn when they are asked for", "[core]") {
  constexpr CoreShare kShare{0.3, 0.1, 50, 0};
  constexpr int64_t kEntries = 640;
  ModelShape shape;
  shape.size = kEntries;
  Core core;
  core.keys = EntrySet(kEntries, std::vector<uint64_t>(kEntries / 64, 0x11));
  const Cores cores = {std::make_shared<const Core>(core)};
  const auto drawn = [&](uint64_t exchange) {
    return DrawKeys(kShare, {7, Rank(0), Exchange(exchange), ShardId(0)}, kEntries, cores[0])
        .entries;
  };
  ExchangeKeys keys({shape, 1, kShare, 7, Rank(0), Exchange(3), true});
  const NoMoreThreads none;
  REQUIRE_THROWS_AS(std::thread([] {}).join(), std::system_error);
  keys.Adopt(cores);
  CHECK(keys.value_keys().sparse.at(0)->entries == drawn(3));
  keys.Advance();
  keys.Advance();  // What was drawn for the exchange between is not asked for.
  CHECK(keys.value_keys().sparse.at(0)->entries == drawn(5));
  keys.Advance();
}

}  // namespace
}  // namespace tessera
