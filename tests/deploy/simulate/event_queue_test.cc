// Events run in the order of time, then of insertion.
#include "deploy/simulate/event_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// A small generator of its own, so that the order is the same everywhere.
struct Dice {
  uint64_t state = 1;
  uint64_t Next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
  }
};

TEST_CASE("events run in the order of their times, whatever the order of insertion", "[events]") {
  SimEventQueue events;
  Dice dice;
  std::vector<SimNanos> ran;
  for (int i = 0; i < 5000; ++i) {
    events.At(static_cast<SimNanos>(dice.Next() % 1000), [&] { ran.push_back(events.now()); });
  }
  CHECK(events.pending() == 5000);
  while (events.RunNext()) {
  }
  CHECK(ran.size() == 5000);
  CHECK(std::is_sorted(ran.begin(), ran.end()));
  CHECK(events.events() == 5000);
}

TEST_CASE("what would happen after the end of time is set for the end", "[events]") {
  constexpr SimNanos kMax = std::numeric_limits<SimNanos>::max();
  SimEventQueue events;
  int ran = 0;
  events.At(5, [&] {
    events.After(kMax, [&] { ++ran; });
    events.At(kMax, [&] { ++ran; });
  });
  while (events.RunNext()) {
  }
  CHECK(ran == 2);
  CHECK(events.now() == kSimEnd);
  events.After(1, [&] { ++ran; });
  CHECK(events.RunNext());
  CHECK(events.now() == kSimEnd);
  CHECK(Later(5, kMax) == kSimEnd);
  CHECK(Later(5, 7) == 12);
}

TEST_CASE("events of the same time run in the order of insertion", "[events]") {
  SimEventQueue events;
  std::vector<int> ran;
  Dice dice;
  std::vector<std::pair<SimNanos, int>> wanted;
  for (int i = 0; i < 2000; ++i) {
    const auto time = static_cast<SimNanos>(dice.Next() % 7);
    wanted.push_back({time, i});
    events.At(time, [&ran, i] { ran.push_back(i); });
  }
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  while (events.RunNext()) {
  }
  REQUIRE(ran.size() == wanted.size());
  for (size_t i = 0; i < ran.size(); ++i) REQUIRE(ran[i] == wanted[i].second);
}

TEST_CASE("an event may add events, for now and later, and now runs after those that were there",
          "[events]") {
  SimEventQueue events;
  std::vector<int> ran;
  events.At(5, [&] {
    ran.push_back(1);
    events.After(0, [&] { ran.push_back(3); });
    events.After(1, [&] { ran.push_back(4); });
  });
  events.At(5, [&] { ran.push_back(2); });
  while (events.RunNext()) {
  }
  CHECK(ran == std::vector<int>{1, 2, 3, 4});
  CHECK(events.now() == 6);
  CHECK_FALSE(events.RunNext());
}

TEST_CASE("a queue that is kept full stays in order over many rounds", "[events]") {
  SimEventQueue events;
  Dice dice;
  SimNanos last = 0;
  bool ordered = true;
  int64_t left = 200000;
  struct Loop {
    SimEventQueue& events;
    Dice& dice;
    SimNanos& last;
    bool& ordered;
    int64_t& left;
    void Run() {
      ordered = ordered && events.now() >= last;
      last = events.now();
      if (--left > 0) events.After(static_cast<SimNanos>(dice.Next() % 100), [this] { Run(); });
    }
  } loop{events, dice, last, ordered, left};
  for (int i = 0; i < 1000; ++i) loop.Run();
  size_t most = 0;
  while (events.RunNext()) most = std::max(most, events.pending());
  CHECK(ordered);
  CHECK(most <= 1000);
  CHECK(left <= 0);
}

}  // namespace
}  // namespace tessera
