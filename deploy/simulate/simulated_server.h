// One server: a real shard, and the time that its thread takes.
//
// It does what server/shard/shard_thread.cc does, in the same order: what has arrived, then one piece
// of work, then the reads that may be answered. Folding a push, or committing without one, takes the
// thread slice bytes / rate, and folding a part of the entries the part's bytes / rate; everything else takes
// no time. What arrives meanwhile waits.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_SERVER_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_SERVER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "common/base/ids.h"
#include "deploy/simulate/observed_policy.h"
#include "deploy/simulate/parked_reads.h"
#include "deploy/simulate/simulated_world.h"
#include "proto/coordinator.pb.h"
#include "server/shard/shard.h"

namespace tessera {

class SimulatedCoordinator;
class SimulatedCores;

class SimulatedServer {
 public:
  struct Options {
    Shard::Options shard;
    int machine = 0;
    // Bytes of its slice that the thread folds per second; 0: no time.
    int64_t rate = 0;
    // The time between two words to the coordinator.
    SimNanos counters_interval = kNanosPerSecond;
  };

  // What a client asks for, once it has arrived. The answers are calls of the client: Acknowledged
  // for a push, then Served for the values. Or NeedKeys for a push, after which the client asks again.
  struct Request {
    enum class Kind { kPushPull, kPull, kReadOutside };
    Kind kind = Kind::kPull;
    ReceivedPush push;
    ParkedRead read;
    RestWord rest;
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
  Shard& shard() { return shard_; }
  const Shard& shard() const { return shard_; }
  size_t parked_reads() const { return reads_.size(); }

 private:
  void Work();
  void Handle(Request request);
  // The time that the piece of work takes which has just been done.
  SimNanos WorkTime();
  void AnswerReads();
  void Answer(const ParkedRead& read, absl::StatusOr<ReadResult> result);
  void AnswerCores();
  void TellCoreReport();
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
  Shard shard_;
  const bool takes_parts_;  // pushes are of a part of the entries
  ParkedReads reads_;
  std::deque<Request> inbox_;
  // Bytes of pushes that are staged, where these are of parts.
  std::map<MemberId, int64_t> part_bytes_;
  std::vector<CoreRequest> core_requests_;  // that wait
  uint64_t core_reports_told_ = 0;
  bool busy_ = false;
  bool closed_ = false;
  // When the shard asked to be called; the number tells the last alarm from earlier ones.
  absl::Time alarm_ = absl::InfiniteFuture();
  uint64_t alarm_number_ = 0;
  uint64_t push_payload_bytes_ = 0;
  uint64_t pull_payload_bytes_ = 0;
  std::set<uint64_t> proposals_;  // not withdrawn
  std::vector<Shard::Removed> removed_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_SERVER_H_
