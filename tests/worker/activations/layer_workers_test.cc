// Who sends to whom: all agree, everybody with data has a receiver, and nobody moves without need.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/worker/activations/lists.h"
#include "worker/activations/layer_workers.h"

namespace tessera {
namespace {

TEST_CASE("each linear worker has as many senders, but for one", "[layer_workers]") {
  for (int front = 1; front <= 9; ++front) {
    for (int linear = 1; linear <= front; ++linear) {
      const LayerSplit split = SplitOf(front, linear);
      const LayerWorkers workers(ListOf(split, 1), split);
      size_t least = 100, most = 0, all = 0;
      for (int l = 0; l < linear; ++l) {
        const std::vector<LayerWorker> senders = workers.AtHomeWith(MemberAt(front + l));
        for (const LayerWorker& sender : senders) {
          CHECK(workers.LinearOf(sender.member)->member == MemberAt(front + l));
        }
        CHECK(std::is_sorted(senders.begin(), senders.end(),
                             [](const LayerWorker& a, const LayerWorker& b) { return a.rank < b.rank; }));
        least = std::min(least, senders.size());
        most = std::max(most, senders.size());
        all += senders.size();
      }
      CHECK(all == static_cast<size_t>(front));
      CHECK(most - least <= 1);
    }
  }
}

TEST_CASE("who is lost moves its own senders alone", "[layer_workers]") {
  const LayerSplit split = SplitOf(6, 3);
  const LayerWorkers all(ListOf(split, 1), split);
  for (uint64_t gone = 0; gone < 9; ++gone) {
    const LayerWorkers left(ListOf(split, 2, {gone}), split);
    for (uint64_t front = 0; front < 6; ++front) {
      const std::optional<LayerWorker> now = left.LinearOf(MemberAt(front));
      if (front == gone) {
        CHECK_FALSE(now.has_value());
        continue;
      }
      REQUIRE(now.has_value());
      const LayerWorker before = *all.LinearOf(MemberAt(front));
      if (before.rank != Rank(gone)) CHECK(now->member == before.member);
      CHECK(now->rank != Rank(gone));
    }
  }
}

TEST_CASE("nobody is sent to again once it was left", "[layer_workers]") {
  const LayerSplit split = SplitOf(5, 4);
  // All orders in which linear workers may go.
  std::vector<uint64_t> order = {5, 6, 7, 8};
  do {
    for (uint64_t front = 0; front < 5; ++front) {
      std::set<uint64_t> gone, left_behind;
      uint64_t last = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        const LayerWorkers workers(ListOf(split, i + 1, gone), split);
        const uint64_t now = workers.LinearOf(MemberAt(front))->rank.value();
        if (now != last) CHECK(left_behind.insert(now).second);
        last = now;
        gone.insert(order[i]);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("without linear workers nobody is sent to, and linear workers send to nobody", "[layer_workers]") {
  const LayerSplit split = SplitOf(2, 1);
  const LayerWorkers none(ListOf(split, 3, {2}), split);
  CHECK_FALSE(none.LinearOf(MemberAt(0)).has_value());
  CHECK(none.AtHomeWith(MemberAt(2)).empty());
  const LayerWorkers all(ListOf(split, 1), split);
  CHECK_FALSE(all.LinearOf(MemberAt(2)).has_value());
  CHECK(all.AtHomeWith(MemberAt(0)).empty());
  CHECK(all.RankOfFront(MemberAt(1)) == Rank(1));
  CHECK_FALSE(all.RankOfFront(MemberAt(2)).has_value());
  CHECK_FALSE(all.RankOfFront(MemberId(77)).has_value());
}

}  // namespace
}  // namespace tessera
