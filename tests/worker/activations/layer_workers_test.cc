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
        const std::vector<LayerWorker> senders = workers.AtHomeWith(MemberAt(front + l), 0);
        for (const LayerWorker& sender : senders) {
          CHECK(workers.LinearOf(sender.member, 0)->member == MemberAt(front + l));
        }
        CHECK(std::is_sorted(
            senders.begin(), senders.end(),
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
      const std::optional<LayerWorker> now = left.LinearOf(MemberAt(front), 0);
      if (front == gone) {
        CHECK_FALSE(now.has_value());
        continue;
      }
      REQUIRE(now.has_value());
      const LayerWorker before = *all.LinearOf(MemberAt(front), 0);
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
        const uint64_t now = workers.LinearOf(MemberAt(front), 0)->rank.value();
        if (now != last) CHECK(left_behind.insert(now).second);
        last = now;
        gone.insert(order[i]);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

// What happens to rank `rank`: another member, that begins with `first_step`.
void Replace(v1::WorkerList* list, uint32_t rank, uint64_t member, uint64_t first_step) {
  for (v1::WorkerEntry& entry : *list->mutable_workers()) {
    if (entry.rank() != rank) continue;
    entry.set_member(member);
    entry.set_first_step(first_step);
  }
}

TEST_CASE("who joins is sent to from its first step on, by those who would have gone there",
          "[layer_workers]") {
  const LayerSplit split = SplitOf(4, 3);  // The homes of 0 to 3 are 4, 4, 5 and 6.
  v1::WorkerList list = ListOf(split, 2);
  Replace(&list, 5, 21, 7);
  const LayerWorkers workers(list, split);
  CHECK(workers.LinearOf(MemberAt(2), 6)->member == MemberAt(6));
  CHECK(workers.LinearOf(MemberAt(2), 7)->member == MemberId(21));
  CHECK(workers.LinearOf(MemberAt(0), 7)->member == MemberAt(4));
  CHECK(workers.AtHomeWith(MemberId(21), 7).size() == 1);
  CHECK(workers.AtHomeWith(MemberAt(6), 7).size() == 1);
  CHECK_FALSE(workers.LinearComesLater(6));

  // One with data takes part from its own first step on.
  Replace(&list, 3, 22, 9);
  const LayerWorkers more(list, split);
  CHECK(more.AtHomeWith(MemberAt(6), 8).empty());
  CHECK(more.AtHomeWith(MemberAt(6), 9).front().member == MemberId(22));
  CHECK(more.LinearOf(MemberId(22), 9)->member == MemberAt(6));
}

TEST_CASE("whoever stood in for one that joins is left at its first step, by no others",
          "[layer_workers]") {
  const LayerSplit split = SplitOf(4, 3);
  v1::WorkerList list = ListOf(split, 2);
  Replace(&list, 5, 21, 7);
  const MemberId stood_in = MemberAt(6), joined(21);
  const auto left_at = [&](MemberId front, MemberId linear, uint64_t since, uint64_t step) {
    return LayerWorkers(list, split).LeftAt(front, linear, since, step);
  };
  CHECK(left_at(MemberAt(2), stood_in, 3, 7) == 7);
  CHECK(left_at(MemberAt(2), stood_in, 3, 90) == 7);
  CHECK_FALSE(left_at(MemberAt(2), stood_in, 3, 6).has_value());
  // It came since then, as that one was gone.
  CHECK_FALSE(left_at(MemberAt(2), stood_in, 7, 90).has_value());
  // Its home is this one, or the one that joined lies behind it.
  CHECK_FALSE(left_at(MemberAt(3), stood_in, 0, 90).has_value());
  CHECK_FALSE(left_at(MemberAt(0), MemberAt(4), 0, 90).has_value());
  // Nobody whom it knows, and the one that joined itself.
  CHECK_FALSE(left_at(MemberId(77), stood_in, 3, 90).has_value());
  CHECK_FALSE(left_at(MemberAt(2), joined, 7, 90).has_value());
  // Also where it has gone meanwhile; the first of several counts.
  *list.add_former() = list.workers(5);
  list.mutable_workers()->DeleteSubrange(5, 1);
  CHECK(left_at(MemberAt(2), stood_in, 3, 90) == 7);
  v1::WorkerEntry& earlier = *list.add_former();
  earlier.set_member(20);
  earlier.set_rank(5);
  earlier.set_first_step(5);
  CHECK(left_at(MemberAt(2), stood_in, 3, 90) == 5);
  CHECK(left_at(MemberAt(2), stood_in, 5, 90) == 7);
}

TEST_CASE("a half that only has workers of later steps is told from one that has nobody",
          "[layer_workers]") {
  const LayerSplit split = SplitOf(2, 1);
  v1::WorkerList list = ListOf(split, 2);
  Replace(&list, 2, 9, 4);
  const LayerWorkers workers(list, split);
  CHECK(workers.LinearComesLater(3));
  CHECK_FALSE(workers.LinearOf(MemberAt(0), 3).has_value());
  CHECK_FALSE(workers.LinearComesLater(4));
  CHECK_FALSE(LayerWorkers(ListOf(split, 2, {2}), split).LinearComesLater(3));
}

TEST_CASE("without linear workers nobody is sent to, and linear workers send to nobody",
          "[layer_workers]") {
  const LayerSplit split = SplitOf(2, 1);
  const LayerWorkers none(ListOf(split, 3, {2}), split);
  CHECK_FALSE(none.LinearOf(MemberAt(0), 0).has_value());
  CHECK(none.AtHomeWith(MemberAt(2), 0).empty());
  const LayerWorkers all(ListOf(split, 1), split);
  CHECK_FALSE(all.LinearOf(MemberAt(2), 0).has_value());
  CHECK(all.AtHomeWith(MemberAt(0), 0).empty());
  CHECK(all.RankOfFront(MemberAt(1)) == Rank(1));
  CHECK_FALSE(all.RankOfFront(MemberAt(2)).has_value());
  CHECK_FALSE(all.RankOfFront(MemberId(77)).has_value());
}

}  // namespace
}  // namespace tessera
