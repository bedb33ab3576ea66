// A real shard that is a replica, on a simulated node, and the steps by which one joins.
#ifndef TESSERA_TESTS_SIM_REPLICA_SERVER_H_
#define TESSERA_TESTS_SIM_REPLICA_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "server/shard/shard.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/faulty_network.h"

namespace tessera {

// What a test breaks on purpose.
enum class ReplicaMutation {
  kNone,
  kForgetsTable,  // a joiner believes that its copy has one push less of everybody
  kKeepsNothing,  // a joiner keeps only every other push until it has a copy
};

class ReplicaServer;

// What all sites of one run share.
struct ReplicaWorld {
  uint64_t seed = 0;
  FaultyNetwork* network = nullptr;
  SimCoordinator* coordinator = nullptr;
  ReplicaMutation mutation = ReplicaMutation::kNone;
  std::map<uint64_t, ReplicaServer*> servers;  // by life
  std::optional<std::string> violation;

  void Violate(const std::string& what) {
    if (!violation.has_value()) violation = what;
  }
};

class ReplicaServer {
 public:
  using Pushes = std::set<std::pair<MemberId, Exchange>>;

  // `world` outlives it. Attaches at once.
  ReplicaServer(ReplicaWorld* world, uint32_t rank, uint64_t life, Shard::Options options);

  NodeId node() const { return node_; }
  uint32_t rank() const { return rank_; }
  uint64_t life() const { return life_; }
  bool is_over() const { return !world_.network->IsAlive(node_); }
  bool copied() const { return shard_.counters().copied; }
  uint64_t layout_hash() const { return shard_.layout_hash(); }
  size_t size() const { return static_cast<size_t>(shard_.slices().size); }

  void Push(ReceivedPush push, std::function<void(absl::StatusOr<PushAccepted>)> answer);
  // The answer: whether there was one.
  void Pull(MemberId member, Exchange after, std::function<void(absl::StatusOr<bool>)> answer);
  void Leave();

  // All that it has folded, or that was in its copy, with what was accepted and not folded yet.
  const Pushes& Settled();
  std::vector<float> Values();

 private:
  struct Copy {
    ReplicaCopy copy;
    Pushes pushes;
  };
  class Recorder;

  void Attach();
  void OnPlanMessage(const v1::PlanMessage& message);
  void Send(const v1::ShardMessage& message);
  void SendCounters(bool closing);
  void Heartbeat();
  void Work();
  void AnswerReads();
  void TryCopy();
  void TakeCopy(const Copy& copy);
  void CheckValues(const std::string& when);

  ReplicaWorld& world_;
  const uint32_t rank_;
  const uint64_t life_;
  const NodeId node_;
  Pushes folded_;
  Shard shard_;
  bool working_ = false;
  bool closed_ = false;
  bool copying_ = false;
  std::string donor_;
  struct ParkedRead {
    MemberId member;
    Exchange after;
    std::function<void(absl::StatusOr<bool>)> answer;
  };
  std::vector<ParkedRead> reads_;
  std::vector<Shard::Removed> removed_;
};

// What a replica holds that has folded these.
std::vector<float> SumOf(const ReplicaWorld& world, const ReplicaServer::Pushes& pushes,
                         int64_t size);

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_REPLICA_SERVER_H_
