// A real shard on a simulated node: what ShardThread and the services do, on virtual time.
#ifndef TESSERA_TESTS_SIM_SIM_SERVER_H_
#define TESSERA_TESTS_SIM_SIM_SERVER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/codec/coded_keys.h"
#include "common/keyset/subnet.h"
#include "proto/coordinator.pb.h"
#include "server/rpc/answer_payload.h"
#include "server/shard/log/log_sink.h"
#include "server/shard/checkpoint_mark.h"
#include "server/shard/served_shard.h"
#include "server/shard/shard.h"
#include "tests/sim/checker.h"
#include "tests/sim/mutation.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_folder.h"
#include "tests/sim/faulty_network.h"

namespace tessera {

// An answer to a pull, as the client has decoded it.
struct PulledValues {
  Version version;
  std::vector<float> values;
  // Of a fetch: how the round is cut for the caller. Without values where it asked otherwise.
  std::optional<SubnetPlace> place;
  // Of a core's entries: the core is not known, and no value came. Cores that there are.
  bool needs_all = false;
  uint64_t cores = 0;
  // The checkpoint that has these values: the reader has a file of it to write.
  CheckpointMark checkpoint;
  // What the reader knows by it.
  Checker::Knowledge known;
};

// An answer to a read at an evaluation.
struct ReadOfMoment {
  // The values were of the middle of a round.
  bool in_round = false;
  Checker::Knowledge known;
};

class SimServer;

// With the mutations that sit in a policy.
std::unique_ptr<ConsistencyPolicy> Mutated(std::unique_ptr<ConsistencyPolicy> policy,
                                           Mutation mutation);

// Where a shard is reached.
class ShardDoor {
 public:
  virtual ~ShardDoor() = default;
  virtual NodeId node() const = 0;
  // nullptr: it is not led here, or not yet.
  virtual SimServer* Find(ShardId shard) = 0;
};

class SimServer final : public ShardDoor {
 public:
  // A shard with initial values, as the checker knows it.
  struct Made {
    CopyId copy;
    std::unique_ptr<Shard> shard;
  };
  struct Options {
    ShardId rank;
    std::unique_ptr<Shard> shard;
    CopyId copy;
    // It has just been made, and nothing of it comes from another.
    bool is_new = true;
    Mutation mutation = Mutation::kNone;
    // By how much this process's clock is wrong.
    absl::Duration clock_error;
    // Of a host of shards: of its node, and what it says of itself. The coordinator refuses a leader that
    // was superseded: its process ends.
    std::optional<NodeId> node;
    std::string address;
    uint64_t lead_term = 0;
    std::function<void()> on_refused;
    // It was asked to end, and may.
    std::function<void()> on_left;
    // Set: checkpoints are kept there. Outlives it.
    SimFolder* folder = nullptr;
    std::function<Made()> make_shard;
    std::function<void(Generation)> on_restore;
    // Requests of earlier ones are refused.
    Generation generation;
    // The disk fails now and then.
    bool has_faults = false;
  };
  // The pointers outlive it.
  SimServer(FaultyNetwork* network, SimCoordinator* coordinator, Checker* checker, Options options);

  NodeId node() const override { return node_; }
  SimServer* Find(ShardId) override { return IsAway() || !has_begun_ ? nullptr : this; }
  ShardId rank() const { return rank_; }
  CopyId copy() const { return copy_; }
  // Requests are refused before it has heard the plan.
  bool has_begun() const { return has_begun_; }
  // The coordinator is not heard: nothing is taken, and nothing told.
  bool IsAway() const;
  uint64_t connection() const { return connection_; }
  uint64_t version() const { return shard().counters().version.value(); }

  // A standby, or none, and what it has.
  void SetStandby(std::shared_ptr<LogSink> sink);
  void OnAcknowledged(const LogSink* from, uint64_t position);

  // `make` gives the push as it arrived.
  void Push(const std::function<ReceivedPush()>& make,
            std::function<void(absl::StatusOr<PushAccepted>)> answer);
  // `core` set: of its entries and the explorer's.
  void Pull(MemberId member, Exchange after, IdleNotice word, std::optional<CoreName> core,
            std::function<void(absl::StatusOr<PulledValues>)> answer);
  // The keys of this core or a later one, once there is one.
  void ReadCore(MemberId member, uint64_t number,
                std::function<void(absl::StatusOr<std::shared_ptr<const Core>>)> answer);

  // The values of `asked`'s round for `member`, or without values where it `waits_only` for that.
  void Fetch(MemberId member, const SubnetPlace& asked, bool waits_only,
             std::function<void(absl::StatusOr<PulledValues>)> answer);

  void ReadOutside(MemberId member, Exchange after, IdleNotice word,
                   std::function<void(absl::StatusOr<ReadOfMoment>)> answer);

  // It is asked to end.
  void Leave() { leaving_ = true; }
  // Its connection to the coordinator breaks, with all that is on its way, and is made anew.
  void BreakLink();
  // For whom it waits, for people.
  std::string Describe() const;

  // As DataPlane's: of a request by one that was told to push and pull under this generation.
  absl::Status CheckCaller(Generation generation) const;
  void SetGeneration(Generation generation) { generation_ = std::max(generation_, generation); }

 private:
  struct AskedRead {
    MemberId member;
    Exchange after;
    std::optional<SubnetPlace> asked;  // of a fetch
    bool waits_only = false;
    std::optional<CoreName> core;
  };

  absl::Time Clock() const { return network_->now() + options_.clock_error; }
  Shard& shard() { return served_.shard(); }
  const Shard& shard() const { return served_.shard(); }
  void Say(v1::ShardMessage message) {
    coordinator_->FromServer(node_, rank_, std::move(message), connection_);
  }
  void Begin() {
    has_begun_ = true;
    checker_->OnServes(copy_);
  }
  void Attach();
  void OnPlanMessage(const v1::PlanMessage& message);
  void ApplyPlan(const v1::Plan& plan);
  void Answer(const v1::Proposal& proposal);
  void SendCounters(bool closing);
  void Heartbeat();
  void AwaitEnd();
  // Something has changed: folds, commits and answers, one piece of work after the other.
  void Work();
  void Read(AskedRead read, IdleNotice word,
            std::function<void(absl::StatusOr<PulledValues>)> answer);
  // nullopt: it must wait.
  absl::StatusOr<std::optional<PulledValues>> Try(const AskedRead& read);
  absl::StatusOr<std::optional<PulledValues>> TryFetch(const AskedRead& read);
  absl::StatusOr<std::optional<PulledValues>> TrySparse(const AskedRead& read);
  // The `values` of `read`'s entries, as they come.
  std::vector<float> Coded(const ReadResult& read, MemberId reader,
                           const std::vector<float>& values);
  void HearQuestion(v1::CoreQuestion question);
  // --- checkpoints (sim_server_checkpoints.cc) ---
  void TakeOrder(const v1::CheckpointOrder& text);
  void Write(const ShardCopy& copy, Exchange wanted);
  void HearRestore(const v1::RestoreOrder& order);
  absl::Status Restore(Generation generation, uint64_t step);
  // Tells the checker of selections.
  void FollowSelection();
  void SetAlarm();
  void CheckWaiting();

  FaultyNetwork* const network_;
  SimCoordinator* const coordinator_;
  Checker* const checker_;
  Options options_;
  bool leaving_ = false;
  const Mutation mutation_;
  const NodeId node_;
  const ShardId rank_;
  CopyId copy_;
  const uint64_t life_;  // another one for every copy that has led
  uint64_t connection_ = 0;
  uint64_t coordinator_life_ = 0;  // of the process that it has connected to
  absl::Time last_heard_;
  v1::CoordinatorWord word_;  // the last one
  ServedShard served_;
  bool has_begun_ = false;
  bool had_events_ = false;
  bool working_ = false;
  absl::Time alarm_ = absl::InfiniteFuture();  // of the shard's deadline
  bool closed_ = false;
  uint64_t next_read_ = 1;
  std::map<uint64_t, Checker::Reader> reads_;  // that wait
  std::optional<uint64_t> selected_;           // the last core that was selected
  std::set<uint64_t> promises_;                // proposals that are not settled
  v1::ProposalReply last_reply_;
  v1::ShardMessage last_part_;
  absl::Time saver_free_;
  Generation generation_;
  Generation restoring_;
  v1::ShardMessage last_restored_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_SERVER_H_
