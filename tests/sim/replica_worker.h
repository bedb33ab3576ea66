// A worker of a job without central servers, on virtual time: pushes to all servers that it knows of,
// pulls from the one beside it.
#ifndef TESSERA_TESTS_SIM_REPLICA_WORKER_H_
#define TESSERA_TESTS_SIM_REPLICA_WORKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "proto/coordinator.pb.h"
#include "tests/sim/replica_server.h"

namespace tessera {

class ReplicaWorker {
 public:
  struct Options {
    uint64_t life = 0;
    std::optional<uint32_t> rank;
    uint64_t steps = 0;
    absl::Duration step_time;
  };
  // `world` outlives it. Begins to join at once.
  ReplicaWorker(ReplicaWorld* world, Options options);

  NodeId node() const { return node_; }
  bool is_over() const { return !world_.network->IsAlive(node_); }
  // It finishes after its exchange, as when it is asked to leave.
  void Stop() { stopping_ = true; }
  // Its training stands still from its next step on, while it goes on renewing its lease.
  void Hang() { hangs_ = true; }

 private:
  void Join();
  void OnAdmitted(const v1::JoinReply& reply);
  void Renew();
  void TakeList(const v1::ServerList& list);
  void Step();
  // Stands until those that can have begun.
  void EndWarmUp();
  void PushPull();
  ReceivedPush MakePush(const ReplicaServer& to, Exchange exchange) const;
  void PushTo(uint64_t life, Exchange exchange);
  void PullFromHome();
  void OnPart();
  void Leave();
  // A refusal: right if it is no member any more or the job has ended.
  void GiveUp(const absl::Status& status);

  ReplicaWorld& world_;
  const Options options_;
  const NodeId node_;
  MemberId member_;
  Exchange exchange_;
  uint64_t step_ = 0;
  uint32_t rank_ = 0;
  uint64_t home_ = 0;  // the life of the server beside it
  uint64_t list_generation_ = 0;
  std::set<uint64_t> servers_;  // lives of those to push to
  std::set<uint64_t> missing_;  // of the exchange under way
  bool pulled_ = false;
  bool has_begun_ = false;
  bool warms_up_ = false;
  bool stopping_ = false;
  bool hangs_ = false;
  v1::Progress::Work work_ = v1::Progress::NOTHING;
  uint64_t beats_ = 0;
  bool exchanging_ = false;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_REPLICA_WORKER_H_
