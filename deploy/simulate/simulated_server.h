// One server: a real shard, and the time that its thread takes.
//
// It runs the ServedShard that server/shard/shard_thread.cc runs, in the same order: what has arrived, then one piece
// of work, then the reads that may be answered. Reads of exchanges wait here and not in there, where all of them are
// asked after each push, which would take long with thousands of members (parked_reads.h). Folding a push, or
// committing without one, takes the thread slice bytes / rate, and folding a part of the entries the part's bytes /
// rate; everything else takes no time. What arrives meanwhile waits.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_SERVER_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_SERVER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "deploy/simulate/observed_policy.h"
#include "deploy/simulate/parked_reads.h"
#include "deploy/simulate/simulated_world.h"
#include "proto/coordinator.pb.h"
#include "server/shard/served_shard.h"
#include "server/shard/shard.h"

namespace tessera {

class SimulatedCoordinator;
class SimulatedCores;

class SimulatedServer {
 public:
  struct Options {
    Shard::Options shard;
    // Among the servers; that of its shard, but where every server holds all entries.
    ShardId rank;
    int machine = 0;
    // Bytes of its slice that the thread folds per second; 0: no time.
    int64_t rate = 0;
    // The time between two words to the coordinator.
    SimNanos counters_interval = kNanosPerSecond;
  };

  // What a client asks for, once it has arrived. The answers are calls of the client: Acknowledged
  // for a push, then Served for the values. Or NeedKeys for a push, after which the client asks again.
  struct Request {
    enum class Kind { kPushPull, kPush, kPull, kReadOutside };
    Kind kind = Kind::kPull;
    ReceivedPush push;
    ParkedRead read;
    IdleNotice rest;
  };

  // `world` and `coordinator` outlive the server.
  SimulatedServer(Options options, SimulatedWorld* world, SimulatedCoordinator* coordinator);

  // Attaches to the coordinator, and keeps telling it of this server.
  void Start();
  void Take(Request request);
  // The keys of a core: the answer is its Answer.
  struct CoreRequest {
    MemberId member;
    uint64_t number = 0;
    SimulatedCores* cores = nullptr;
    uint64_t call = 0;
  };
  void TakeCoreRequest(const CoreRequest& request);
  void OnPlanMessage(const v1::PlanMessage& message);

  int machine() const { return machine_; }
  ShardId rank() const { return rank_; }
  const Shard& shard() const { return served_.shard(); }
  size_t parked_reads() const { return reads_.size(); }

 private:
  void Work();
  void Handle(Request request);
  // The time that the piece of work takes which has just been done.
  SimNanos WorkTime();
  void AnswerReads();
  void Answer(const ParkedRead& read, absl::StatusOr<ReadResult> result);
  void SetAlarm();
  void ApplyPlan(const v1::Plan& text);
  void AnswerProposal(const v1::Proposal& proposal);
  void SendCounters(bool closing);
  void Heartbeat();

  const ShardId rank_;
  const int machine_;
  const int64_t rate_;
  const SimNanos work_time_;
  const SimNanos counters_interval_;
  SimulatedWorld& world_;
  SimulatedCoordinator& coordinator_;
  PolicyNews news_;
  ServedShard served_;
  const bool takes_parts_;  // pushes are of a part of the entries
  ParkedReads reads_;
  std::deque<Request> inbox_;
  // Bytes of pushes that are staged, where these are of parts.
  std::map<MemberId, int64_t> part_bytes_;
  uint64_t core_reads_ = 0;  // so far
  bool busy_ = false;
  bool closed_ = false;
  // When the shard asked to be called; the number tells the last alarm from earlier ones.
  absl::Time alarm_ = absl::InfiniteFuture();
  uint64_t alarm_number_ = 0;
  uint64_t push_payload_bytes_ = 0;
  uint64_t pull_payload_bytes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_SERVER_H_
