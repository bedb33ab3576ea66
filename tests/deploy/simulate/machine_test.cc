// Processor sharing against times worked out by hand.
#include "deploy/simulate/machine.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <vector>

namespace tessera {
namespace {

struct Bed {
  explicit Bed(int cores) : machine(cores, &events) {}

  void Run(SimNanos work, int name) {
    machine.Run(work, [this, name] { ended[name] = events.now(); });
  }
  void RunAt(SimNanos time, SimNanos work, int name) {
    events.At(time, [this, work, name] { Run(work, name); });
  }
  std::map<int, SimNanos> Finish() {
    while (events.RunNext()) {
    }
    return ended;
  }

  SimEventQueue events;
  SimMachine machine;
  std::map<int, SimNanos> ended;
};

using Times = std::map<int, SimNanos>;

TEST_CASE("tasks on cores of their own take their work", "[machine]") {
  Bed bed(2);
  bed.Run(100, 1);
  bed.Run(250, 2);
  CHECK(bed.Finish() == Times{{1, 100}, {2, 250}});
}

TEST_CASE("three equal tasks on two cores all take half as long again", "[machine]") {
  Bed bed(2);
  for (int i = 1; i <= 3; ++i) bed.Run(200, i);
  CHECK(bed.Finish() == Times{{1, 300}, {2, 300}, {3, 300}});
}

TEST_CASE("a task that ends gives its share to the others", "[machine]") {
  Bed bed(1);
  bed.Run(100, 1);
  bed.Run(300, 2);
  // Both at half rate until 200; then 200 are left for the second alone.
  CHECK(bed.Finish() == Times{{1, 200}, {2, 400}});
}

TEST_CASE("a task that comes later slows those that run from then on", "[machine]") {
  Bed bed(1);
  bed.Run(100, 1);
  bed.RunAt(60, 20, 2);
  // From 60: 40 left and 20, at half rate. 20 are done at 100, the last 20 at 120.
  CHECK(bed.Finish() == Times{{1, 120}, {2, 100}});
}

TEST_CASE("a task never gets more than one core", "[machine]") {
  Bed bed(64);
  bed.Run(1000, 1);
  CHECK(bed.Finish() == Times{{1, 1000}});
}

TEST_CASE("without a number of cores no task waits", "[machine]") {
  Bed bed(0);
  for (int i = 1; i <= 3; ++i) bed.Run(100, i);
  CHECK(bed.Finish() == Times{{1, 100}, {2, 100}, {3, 100}});
}

TEST_CASE("tasks without work end at once, in order", "[machine]") {
  Bed bed(1);
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) bed.machine.Run(0, [&order, i] { order.push_back(i); });
  bed.Finish();
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(bed.events.now() == 0);
}

TEST_CASE("work is neither lost nor made, however often the number of tasks changes", "[machine]") {
  // A machine that always has more to do than cores finishes after all work over all cores.
  constexpr int kCores = 3;
  Bed bed(kCores);
  uint64_t state = 9;
  SimNanos work = 0;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto size = static_cast<SimNanos>(1000 + (state >> 33) % 10007);
    work += size;
    bed.RunAt(i * 1000, size, i);
  }
  const Times ended = bed.Finish();
  REQUIRE(ended.size() == 20000);
  SimNanos last = 0;
  for (const auto& [name, time] : ended) last = std::max(last, time);
  // The last few may leave cores idle.
  CHECK(last >= work / kCores);
  CHECK(last <= work / kCores + 2 * 11007);
  CHECK(bed.machine.running() == 0);
}

TEST_CASE("work that would end after the end of time ends then", "[machine]") {
  for (const int cores : {0, 1}) {
    SimEventQueue events;
    SimMachine machine(cores, &events);
    int done = 0;
    for (int i = 0; i < 3; ++i) {
      machine.Run(std::numeric_limits<SimNanos>::max(), [&done] { ++done; });
    }
    // Three on one core are never done; one alone just so.
    for (int i = 0; i < 3; ++i) events.RunNext();
    CHECK(events.now() == kSimEnd);
    CHECK(done == (cores == 0 ? 3 : 0));
  }
}

TEST_CASE("an alternating load of thirds does not drift", "[machine]") {
  // Three endless chains of 100 on one core: each link takes 300, exactly, for ever.
  SimEventQueue events;
  SimMachine machine(1, &events);
  struct Chain {
    SimEventQueue& events;
    SimMachine& machine;
    int left;
    SimNanos end = 0;
    void Next() {
      end = events.now();
      if (left-- > 0) machine.Run(100, [this] { Next(); });
    }
  };
  std::vector<Chain> chains(3, Chain{events, machine, 100000});
  for (Chain& chain : chains) chain.Next();
  while (events.RunNext()) {
  }
  for (const Chain& chain : chains) CHECK(chain.end == SimNanos{300} * 100000);
}

}  // namespace
}  // namespace tessera
