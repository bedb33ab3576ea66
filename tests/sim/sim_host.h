// A server process of a job with standbys, on a simulated node: it leads shards and follows others, as the
// coordinator tells it. What it decides is the product's (HostRoles, FollowedShards, LogQueue, ServedShard);
// connections and threads are played.
#ifndef TESSERA_TESTS_SIM_SIM_HOST_H_
#define TESSERA_TESTS_SIM_SIM_HOST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/replication.pb.h"
#include "server/rpc/followed_shards.h"
#include "server/rpc/host_roles.h"
#include "server/rpc/log_queue.h"
#include "tests/sim/checker.h"
#include "tests/sim/mutation.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_folder.h"
#include "tests/sim/faulty_network.h"
#include "tests/sim/sim_server.h"

namespace tessera {

class SimHost;
class SimLog;

// Hosts by address; those that are gone, too.
using HostDirectory = std::map<std::string, SimHost*>;

class SimHost final : public ShardDoor {
 public:
  struct Options {
    uint32_t rank = 0;
    // Of the process; its address follows from it.
    uint64_t life = 0;
    // All but the policy's wrapping.
    std::function<Shard::Options(ShardId)> shard_options;
    Mutation mutation = Mutation::kNone;
    absl::Duration clock_error;
    // Outlives this. It enters itself.
    HostDirectory* hosts = nullptr;
    // As SimServer's.
    SimFolder* folder = nullptr;
    bool has_faults = false;
    // The process has ended by itself.
    std::function<void(uint32_t rank)> on_end;
    // So, as it was asked to end and may.
    std::function<void(uint32_t rank)> on_left;
  };
  SimHost(FaultyNetwork* network, SimCoordinator* coordinator, Checker* checker, Options options);

  NodeId node() const override { return node_; }
  SimServer* Find(ShardId shard) override;
  uint32_t rank() const { return options_.rank; }
  const std::string& address() const { return address_; }
  bool is_alive() const { return network_->IsAlive(node_); }

  // It is asked to end.
  void Leave();

  // --- faults ---

  // The process dies. `is_silent`: with its machine, so that nobody is told by the network.
  void Die(bool is_silent);
  // One of its connections to the coordinator breaks and is made anew.
  void BreakLink();
  // A log that it sends breaks off; the tail of it is lost.
  void BreakLog();
  // What the network tells of another's death.
  void OnPeerDied(const SimHost* peer);

  std::string Describe() const;

 private:
  friend class SimLog;

  absl::Time Clock() const { return network_->now() + options_.clock_error; }
  void Attach();
  void Heartbeat();
  v1::HostMessage Message();
  void SaySoon();
  void OnOrder(const v1::HostOrder& order);
  void Obey(const RoleChanges& changes);
  void Feed(const RoleChanges::Feed& feed);
  std::unique_ptr<Shard> MakeShard(ShardId shard, uint64_t term);
  // As DataPlanes::SetGeneration.
  void SetGeneration(Generation generation);
  // A chunk of a leader's log.
  void Take(SimLog* from, LogQueue::Message message);
  void End();

  FaultyNetwork* const network_;
  SimCoordinator* const coordinator_;
  Checker* const checker_;
  const Options options_;
  const NodeId node_;
  const std::string address_;
  uint64_t connection_ = 0;
  uint64_t coordinator_life_ = 0;
  v1::CoordinatorWord word_;
  bool heard_once_ = false;
  absl::Time last_heard_;
  bool says_soon_ = false;
  bool leaving_ = false;
  HostRoles roles_;
  FollowedShards followed_;
  std::map<ShardId, uint64_t> follows_;  // terms
  std::map<const Shard*, CopyId> copies_;
  std::map<ShardId, CopyId> prepared_;          // for streams that are to come
  std::map<const SimLog*, LogReader> readers_;  // of streams that are open
  std::set<const SimLog*> closed_;
  Generation generation_;
  std::map<ShardId, std::unique_ptr<SimServer>> led_;
  std::map<ShardId, std::shared_ptr<SimLog>> logs_;  // of what is led
  std::vector<std::shared_ptr<SimLog>> past_logs_;
};

// One stream of a leader to its standby.
class SimLog final : public LogSink, public std::enable_shared_from_this<SimLog> {
 public:
  SimLog(SimHost* from, SimServer* shard, SimHost* to, v1::LogHeader header);

  const LogQueue& queue() const { return queue_; }
  SimHost* to() const { return to_; }
  // As Replicator::End.
  void End();
  void Break();
  void OnAck(uint64_t position);
  void OnEnded(const std::string& why);
  void CheckProgress();

  // --- LogSink ---
  void Begin(bool copies) override;
  void Add(uint64_t position, Version version, ShardEvent event) override;
  void OnInSync() override;
  void Break(const std::string& why) override { OnEnded(why); }

 private:
  friend class SimHost;
  void Pump();

  SimHost* const from_;
  SimServer* const shard_;
  SimHost* const to_;
  const uint64_t connection_;
  LogQueue queue_;
  bool writing_ = false;
  bool cut_ = false;
  bool is_mute_ = false;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_HOST_H_
