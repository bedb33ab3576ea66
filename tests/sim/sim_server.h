// A real shard on a simulated node: what ShardThread and the services do, on virtual time.
#ifndef TESSERA_TESTS_SIM_SIM_SERVER_H_
#define TESSERA_TESTS_SIM_SIM_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/keyset/subnet.h"
#include "proto/coordinator.pb.h"
#include "server/shard/shard.h"
#include "tests/sim/checker.h"
#include "tests/sim/mutation.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_network.h"

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
};

class SimServer {
 public:
  // The pointers outlive it.
  SimServer(SimNetwork* network, SimCoordinator* coordinator, Checker* checker,
            Shard::Options options, Mutation mutation);

  NodeId node() const { return node_; }
  const ShardSlices& slices() const { return shard_.slices(); }
  uint64_t layout_hash() const { return shard_.layout_hash(); }

  // `make` gives the push as it arrived.
  void Push(const std::function<ReceivedPush()>& make,
            std::function<void(absl::StatusOr<PushAccepted>)> answer);
  // `core` set: of its entries and the explorer's.
  void Pull(MemberId member, Exchange after, RestWord word, std::optional<CoreName> core,
            std::function<void(absl::StatusOr<PulledValues>)> answer);
  // The keys of this core or a later one, once there is one.
  void ReadCore(MemberId member, uint64_t number,
                std::function<void(absl::StatusOr<std::shared_ptr<const Core>>)> answer);

  // The values of `asked`'s round for `member`, or without values where it `waits_only` for that.
  void Fetch(MemberId member, const SubnetPlace& asked, bool waits_only,
             std::function<void(absl::StatusOr<PulledValues>)> answer);

  // Whether the values were of the middle of a round.
  bool ReadOutside(MemberId member, Exchange after, RestWord word);

  // Its connection to the coordinator breaks, with all that is on its way, and is made anew.
  void BreakLink();
  // For whom it waits, for people.
  std::string Describe() const;

 private:
  struct ParkedRead {
    MemberId member;
    Exchange after;
    std::function<void(absl::StatusOr<PulledValues>)> answer;
    std::optional<SubnetPlace> asked;  // of a fetch
    bool waits_only = false;
    std::optional<CoreName> core;
  };
  struct ParkedCore {
    MemberId member;
    uint64_t number = 0;
    std::function<void(absl::StatusOr<std::shared_ptr<const Core>>)> answer;
  };

  void Attach();
  void OnPlanMessage(const v1::PlanMessage& message);
  void ApplyPlan(const v1::Plan& plan);
  void Answer(const v1::Proposal& proposal);
  void SendCounters(bool closing);
  void Heartbeat();
  // Something has changed: folds, commits and answers, one piece of work after the other.
  void Work();
  void AnswerReads();
  // nullopt: it must wait.
  absl::StatusOr<std::optional<PulledValues>> Try(const ParkedRead& read);
  absl::StatusOr<std::optional<PulledValues>> TryFetch(const ParkedRead& read);
  absl::StatusOr<std::optional<PulledValues>> TrySparse(const ParkedRead& read);
  void AnswerCores();
  void HearQuestion(v1::CoreQuestion question);
  // Tells the checker of selections, and the coordinator of reports that are new.
  void FollowSelection();
  void SetAlarm();
  void CheckWaiting();

  SimNetwork* const network_;
  SimCoordinator* const coordinator_;
  Checker* const checker_;
  const Mutation mutation_;
  const NodeId node_;
  const ShardId rank_;
  Shard shard_;
  bool working_ = false;
  absl::Time alarm_ = absl::InfiniteFuture();  // of the shard's deadline
  bool closed_ = false;
  std::vector<ParkedRead> reads_;
  std::vector<ParkedCore> core_reads_;
  std::optional<uint64_t> selecting_;  // the last core that a selection was begun of
  std::optional<uint64_t> selected_;   // the last one that was selected
  uint64_t reports_sent_ = 0;
  std::set<uint64_t> promises_;  // proposals that are not settled
  v1::ProposalReply last_reply_;
  std::vector<Shard::Removed> removed_;  // all that ever were
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_SERVER_H_
