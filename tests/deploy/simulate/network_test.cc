// Links against times worked out by hand. 1 byte per nanosecond throughout: 1 GB/s.
#include "deploy/simulate/network.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <vector>

namespace tessera {
namespace {

constexpr int64_t kBytePerNano = 1'000'000'000;

struct Bed {
  explicit Bed(int count, int64_t bandwidth = kBytePerNano, SimNanos latency = 50, int cores = 0)
      : machines(Machines(count, cores, &events)),
        network({bandwidth, latency, 4 * kBytePerNano}, &events, &machines) {}

  static std::vector<std::unique_ptr<SimMachine>> Machines(int count, int cores,
                                                           SimEventQueue* events) {
    std::vector<std::unique_ptr<SimMachine>> machines;
    for (int i = 0; i < count; ++i) machines.push_back(std::make_unique<SimMachine>(cores, events));
    return machines;
  }

  void Send(int from, int to, int64_t bytes, int name) {
    network.Send(from, to, bytes, [this, name] { arrived[name] = events.now(); });
  }
  void SendAt(SimNanos time, int from, int to, int name) {
    events.At(time, [this, from, to, name] { Send(from, to, 100, name); });
  }
  std::map<int, SimNanos> Run() {
    while (events.RunNext()) {
    }
    return arrived;
  }

  SimEventQueue events;
  std::vector<std::unique_ptr<SimMachine>> machines;
  SimNetwork network;
  std::map<int, SimNanos> arrived;
};

using Times = std::map<int, SimNanos>;

TEST_CASE("a message on free links takes latency and size over bandwidth, once", "[network]") {
  Bed bed(2);
  bed.Send(0, 1, 1000, 1);
  CHECK(bed.Run() == Times{{1, 1050}});
}

TEST_CASE("a message without bytes takes the latency", "[network]") {
  Bed bed(2);
  bed.Send(0, 1, 0, 1);
  CHECK(bed.Run() == Times{{1, 50}});
}

TEST_CASE("without a limit of bandwidth only latency counts", "[network]") {
  Bed bed(2, 0);
  bed.Send(0, 1, 1 << 30, 1);
  bed.Send(0, 1, 1 << 30, 2);
  CHECK(bed.Run() == Times{{1, 50}, {2, 50}});
}

TEST_CASE("two messages of one sender leave one after the other", "[network]") {
  Bed bed(3);
  bed.Send(0, 1, 1000, 1);
  bed.Send(0, 2, 500, 2);
  CHECK(bed.Run() == Times{{1, 1050}, {2, 1550}});
}

TEST_CASE("two flows into one downlink share it: the second is done a transfer later",
          "[network]") {
  Bed bed(3);
  bed.Send(0, 2, 1000, 1);
  bed.Send(1, 2, 1000, 2);
  CHECK(bed.Run() == Times{{1, 1050}, {2, 2050}});
}

TEST_CASE("opposite directions do not meet", "[network]") {
  Bed bed(2);
  bed.Send(0, 1, 1000, 1);
  bed.Send(1, 0, 1000, 2);
  CHECK(bed.Run() == Times{{1, 1050}, {2, 1050}});
}

TEST_CASE("a message that waits at its sender keeps no downlink busy", "[network]") {
  Bed bed(4);
  bed.Send(0, 3, 1000, 1);   // occupies 0's uplink until 1000
  bed.Send(0, 2, 1000, 2);   // reaches 2's downlink at 1050 only
  bed.SendAt(200, 1, 2, 3);  // so that this one passes: 200 + 50 + 100
  CHECK(bed.Run() == Times{{1, 1050}, {2, 2050}, {3, 350}});
}

TEST_CASE("an exchange of all with all moves at the speed of the links", "[network]") {
  constexpr int kMachines = 8;
  Bed bed(kMachines);
  for (int k = 0; k < kMachines; ++k) {
    for (int step = 1; step < kMachines; ++step) {
      bed.Send(k, (k + step) % kMachines, 1000, k * kMachines + step);
    }
  }
  SimNanos last = 0;
  for (const auto& [name, time] : bed.Run()) last = std::max(last, time);
  CHECK(last == 7 * 1000 + 50);
}

TEST_CASE("processes of one machine use its loopback: no latency, but work for a core",
          "[network]") {
  Bed bed(2, kBytePerNano, 50, /*cores=*/1);
  bed.Send(0, 0, 1000, 1);
  bed.Send(0, 0, 2000, 2);
  bed.Send(0, 1, 1000, 3);
  bed.machines[0]->Run(1000, [] {});
  // 250 and 500 of one core, shared by three until the first ends at 750, then by two.
  CHECK(bed.Run() == Times{{1, 750}, {2, 1250}, {3, 1050}});
  CHECK(bed.network.sent_bytes(0) == 1000);
  CHECK(bed.network.received_bytes(0) == 0);
  CHECK(bed.network.received_bytes(1) == 1000);
}

TEST_CASE("a signal takes the latency only, and overtakes what waits for the link", "[network]") {
  Bed bed(2);
  bed.Send(0, 1, 1000, 1);
  bed.network.Signal(0, 1, [&bed] { bed.arrived[2] = bed.events.now(); });
  bed.network.Signal(0, 0, [&bed] { bed.arrived[3] = bed.events.now(); });
  CHECK(bed.Run() == Times{{1, 1050}, {2, 50}, {3, 0}});
}

TEST_CASE("transfers are rounded up to whole nanoseconds and do not overflow", "[network]") {
  CHECK(TransferNanos(1, 3) == 333'333'334);
  CHECK(TransferNanos(0, 3) == 0);
  CHECK(TransferNanos(int64_t{1} << 40, 125'000'000) == 8'796'093'022'208);
  CHECK(TransferNanos(int64_t{1} << 40, 0) == 0);
  CHECK(TransferNanos(int64_t{1} << 40, 1) == kSimEnd);
}

TEST_CASE("messages between two machines arrive in the order in which they were sent",
          "[network]") {
  Bed bed(2);
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    bed.network.Send(0, 1, i % 3 == 0 ? 5000 : 1, [&order, i] { order.push_back(i); });
  }
  bed.Run();
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) REQUIRE(order[i] == i);
}

}  // namespace
}  // namespace tessera
