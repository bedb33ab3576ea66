// The end of a server's shards, with threads.
#include "server/shard_host.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/checkpoint/manifest.h"
#include "common/consistency/barrier.h"
#include "common/consistency/forwarding_policy.h"
#include "common/rule/add.h"
#include "proto/job.pb.h"
#include "server/control/job_facts.h"
#include "server/server_checkpoints.h"
#include "server/shard/shard.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

// The shard's thread, held where it is asked for its counters.
struct Held {
  std::atomic<bool> was_asked{false};
  absl::Notification asked, let_go;
};

class HeldPolicy final : public ForwardingPolicy {
 public:
  explicit HeldPolicy(Held* held) : ForwardingPolicy(MakeBarrier()), held_(held) {}
  std::vector<MemberId> WaitsFor() const override {
    if (!held_->was_asked.exchange(true)) {
      held_->asked.Notify();
      held_->let_go.WaitForNotification();
    }
    return ForwardingPolicy::WaitsFor();
  }

 private:
  Held* const held_;
};

// That what is used is there is for --config=asan to see.
TEST_CASE("a host that ends waits for a shard that is about to say its counters", "[host]") {
  Held held;
  JobFacts facts;
  facts.model_manifest = std::make_shared<const Manifest>();
  ServerCheckpoints checkpoints(v1::Job(), facts, 0);
  ShardHost::Options options;
  options.half_open_pushes_per_host = 1;
  options.unread_bytes_per_host = int64_t{1} << 20;
  // Nobody is there, and counters are asked for all the same: four times a lease.
  options.lease_timeout = absl::Milliseconds(200);
  options.shard_options = [&held](uint32_t) {
    Shard::Options shard;
    shard.shape = ZeroMatrix(4, 1);
    shard.policy = std::make_unique<HeldPolicy>(&held);
    shard.rule = MakeAdd();
    return shard;
  };
  options.checkpoints = &checkpoints;
  options.on_end = [](const absl::Status&) {};
  auto host = std::make_unique<ShardHost>(std::move(options));
  host->Start("127.0.0.1:1", "server:0");
  held.asked.WaitForNotification();
  auto ends = std::async(std::launch::async, [&host] { host.reset(); });
  // Time for it to come to where it waits.
  CHECK(ends.wait_for(std::chrono::milliseconds(300)) == std::future_status::timeout);
  held.let_go.Notify();
  ends.get();
}

}  // namespace
}  // namespace tessera
