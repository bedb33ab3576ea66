// The parameters one server process answers for, and the only code that writes them.
#ifndef TESSERA_SERVER_SHARD_SHARD_H_
#define TESSERA_SERVER_SHARD_SHARD_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/codec/coded_keys.h"
#include "common/codec/payload.h"
#include "common/consistency/policy.h"
#include "common/keyset/named_keys.h"
#include "common/layout/shard_map.h"
#include "common/rule/rule.h"
#include "common/rule/schedule.h"
#include "server/shard/block_store.h"
#include "server/shard/checkpoint_mark.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/forms/exchange_form.h"
#include "server/shard/reader_gate.h"
#include "server/shard/received_push.h"
#include "server/shard/replica_copying.h"
#include "server/shard/saved_shard.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_event.h"
#include "server/shard/shard_memory.h"
#include "server/shard/shard_options.h"
#include "server/shard/shard_traits.h"

namespace tessera {

struct PushAccepted {
  bool duplicate = false;
  Version version;
  // The core is not known: nothing was accepted, push again with its keys.
  bool need_keys = false;
};

// A consistent read of everything the shard owns.
struct ReadResult {
  std::shared_ptr<const Snapshot> snapshot;
  Version version;
  // Rows that its updates were computed from.
  uint64_t examples = 0;
  // Where exchanges move a core: those that have been selected.
  uint64_t cores = 0;
  // The checkpoint that has these values, of an exchange: its reader has a file of it to write.
  CheckpointMark checkpoint;
  // The plan that counts.
  Generation plan;
  // Which of the values the reader asked for. nullptr: they are not to be had, as the core that it named is not known,
  // or as exchanges are of all entries by now and no site has a subnet.
  std::shared_ptr<const ExchangedEntries> entries;
};

// All that a replica holds, for one that joins.
struct ReplicaCopy {
  ReadResult read;
  ReplicaTable table;
};

// All that a checkpoint keeps of a shard, as it was at one moment.
struct ShardCopy {
  CopyOrder order;
  ReadResult values;
  // The rule's, each one slice's worth.
  std::vector<std::shared_ptr<const std::vector<float>>> states;
  ShardCounters counters;
  // The last exchange of each member that is in the values.
  std::vector<std::pair<MemberId, Exchange>> folded;
  // In a job of subnets: the next exchange is of all entries.
  bool whole_next = false;
};

// Folds pushes into its parameters as the consistency policy decides.
//
// Threading: one thread at a time, the shard's own. Nothing here locks, sleeps or reads a clock: the
// caller says what time it is.
// Versions start at 0 and grow by one per committed update.
//
// A push goes through three steps, so that its sender is answered before the arithmetic is done:
//   Accept   validates it against layout, members and what was seen, and stages it
//   Advance  folds one staged push whose turn has come, and commits
//   Read     answers a member whose reads the policy allows
//
// What its exchanges are of, and so which entries a push has and how pushes become an update, is the form's
// (forms/exchange_form.h), and what it holds back of updates that are being collected.
//
// Where placement is replicated every server's shard is the whole model, and all fold the same pushes,
// whatever becomes of their senders: a push that was accepted is folded although its sender was removed.
// One that joins a running job keeps what is pushed until it has a copy (replica.h has the steps).
class Shard {
 public:
  using Options = ShardOptions;

  explicit Shard(Options options);

  // Checks and stages `push`. On error nothing has changed but a counter:
  //   kInvalidArgument     size, kind or layout differ, a value is not finite, the base is ahead, a
  //                        subnet where all entries are wanted, or the reverse, and so of layers
  //   kFailedPrecondition  not a member, an exchange that is not its next one, another round's
  //                        subnet or another site's, a subnet among pushes of all entries or the
  //                        reverse, a core that is not the exchange's
  // A repeated (member, exchange) is accepted and dropped, so a retry is always safe.
  absl::StatusOr<PushAccepted> Accept(ReceivedPush push);

  // Does one piece of due work: folds one staged push, or commits what a removal, a rest or the
  // time left complete. Returns whether there was any; call until there is none.
  bool Advance(absl::Time now);
  // When Advance may have work although nothing else happens.
  std::optional<absl::Time> Deadline() const;

  // The current values of `keys` for a member that has made exchange `after`, or nullopt while the policy makes it
  // wait. Of a subnet, those of the member's place in the round behind `after`, whatever place `keys` names.
  //   kInvalidArgument     the job has no reads of such keys
  //   kFailedPrecondition  not a member or a site, or the round is over
  absl::StatusOr<std::optional<ReadResult>> Read(MemberId member, Exchange after,
                                                 const NamedKeys& keys = AllEntries());
  // The core of this number or a later one; nullopt: it is not selected yet. Codes as Read.
  absl::StatusOr<std::optional<std::shared_ptr<const Core>>> ReadCore(MemberId member,
                                                                      uint64_t number);
  // `member` rests from when its exchange `after` is folded, or it goes on. A push after `after`
  // ends its rest, too.
  void Rest(MemberId member, Exchange after, RestWord word);
  // A read outside the exchange: evaluation, joining. Never waits.
  ReadResult ReadNow();

  // --- replicas (shard_replica.cc) ---

  // This server has joined a running job: from now on pushes are kept, and nothing is folded or read,
  // until TakeCopy. No effect once there was one.
  void AwaitCopy();
  // Every member of the plan has pushed here, so that a copy made from now on has what was pushed before.
  bool HeardFromAll() const;
  // HeardFromAll, or so much is kept here by now that some of it should go, namely what any copy contains.
  bool WantsCopy() const;
  // Values and table of another replica. Kept pushes that are in them are dropped, also where the copy
  // will not do.
  //   kUnavailable      they lack pushes that did not come here, or the other one's plan is older: copy
  //                     again
  //   kInvalidArgument  the size is not the shard's
  absl::Status TakeCopy(const ReplicaTable& table, absl::Span<const float> values);
  // All that was accepted, folded, and the table of it. kUnavailable: this one awaits a copy itself.
  absl::StatusOr<ReplicaCopy> CopyReplica(absl::Time now);
  // Where this is a replica: folds all that was accepted, so that all replicas that were sent the same
  // are the same.
  void FoldAccepted(absl::Time now);

  // --- membership: the coordinator's plan (docs/design/control.md) ---

  using Removed = RemovedMember;
  // `plan` counts from now on. Pushes of removed members that were not folded are dropped, but for
  // replicas. Returns those whom it removes.
  std::vector<Removed> SetPlan(const Plan& plan);
  // The members that any plan so far has removed, the newest kRemovedMax of them.
  static constexpr size_t kRemovedMax = 256;
  const std::deque<Removed>& removed() const { return removed_; }
  // A member asks to be counted from `first` on. Returns the first exchange this shard can promise
  // it: `first`, or a later one. Until SetPlan or Withdraw settles it nothing of the promised
  // exchange is folded; where subnets or halves of the layers are trained, nothing of the one before, as its
  // end opens the promised one, and who is in that is not known yet.
  Exchange Propose(uint64_t proposal, Exchange first);
  // That proposal is void, and all before it: their numbers grow.
  void Withdraw(uint64_t proposal);
  const Plan& plan() const { return plan_; }
  // Why a push of somebody whom the plan does not have is refused: kFailedPrecondition, or kUnavailable
  // where a replica has no plan yet. Without `where` the caller's words come before.
  absl::Status NotMember(absl::string_view where) const;
  // The members whose pushes are missing here: neither folded nor staged.
  std::vector<MemberId> WaitsFor() const;

  // --- checkpoints ---

  // Replaces an order whose copy is not due yet. One that was made, or an older one, is not made again.
  //   kAborted  it was made by the leader before this one, and is lost with it
  absl::Status Order(const CopyOrder& order);
  // The copy that was ordered, where it is due now: call after every Advance. Parameters are shared
  // with the shard, block by block; states are copied.
  std::optional<ShardCopy> TakeCopy();
  // Before anything else but construction. read_rows' errors; the shard is of no use after one.
  absl::Status Load(const SavedShard& saved);
  // Another one of the same options is the same: nothing was loaded, planned or committed.
  bool is_as_made() const {
    return !is_loaded_ && plan_.generation == Generation() && counters_.version == Version();
  }
  // It takes the place of one that had counted these.
  void CountOn(const ShardCounters& before) { counters_.CountOn(before); }

  // --- standbys (shard_standby.cc) ---

  // Pushes are summed, each of all entries, and all members make the same exchange together: a standby is told
  // of folds and of the sum.
  bool CombinesPushes() const;
  // What Advance does is kept for TakeRecords, where pushes are combined. When an update begins.
  void Record(bool records) { records_ = records && CombinesPushes(); }
  // The last Advance folded or committed something, which a standby must do, too; the rest of its work
  // changes nothing that anybody could tell.
  bool advanced_pushes() const { return advanced_pushes_; }
  std::vector<ShardEvent> TakeRecords() { return std::exchange(recorded_, {}); }
  // True once no member's push of `exchange` can change the parameters any more.
  bool IsOver(Exchange exchange) const { return policy_->Collecting() > exchange; }
  // Does again what another shard has done. Once it has failed the shard is of no use.
  //   kInvalidArgument    it cannot have happened here
  absl::Status Apply(ShardEvent event);
  // Values of one event at most: an image's, or a push's with a core's keys.
  int64_t event_bytes_max() const;
  // nullopt: an update is half collected, or what is staged is of a core whose keys are forgotten. Not of
  // replicas.
  std::optional<ImageEvent> TakeImage();
  // What is staged, as the events that brought it; empty where pushes are combined.
  std::vector<ShardEvent> StagedPushes() const;

  // --- staging: how many bytes of pushes may wait here ---

  // True if a push of `bytes` from `member` may start to arrive: it is the next to be folded, which
  // always has a place, or it fits under the limit. The caller returns the place with Release
  // unless Accept staged the push, whose reserved_bytes say how much.
  //
  // Under a barrier others than the next never have more than the limit, but for one push more for a
  // moment: where a plan puts somebody in front of the next in order, that one keeps its place.
  bool Reserve(MemberId member, int64_t bytes);
  void Release(MemberId member, int64_t bytes);
  // How many members' turns come before this one's, where the order matters; 0 elsewhere.
  int64_t PushesBefore(MemberId member) const;
  int64_t reserved_bytes() const { return reserved_bytes_; }

  // The selection of cores; nullptr where exchanges move none.
  CoreExchange* cores() { return form_->cores(); }
  const CoreExchange* cores() const { return form_->cores(); }
  const ShardTraits& traits() const { return traits_; }
  const ShardSlices& slices() const { return traits_.slices; }
  uint64_t layout_hash() const { return traits_.layout_hash; }
  ShardCounters counters() const;
  // The sum over rows of a hash of (parameter, row, values).
  uint64_t ParametersHash() const;
  // Bytes that the store, pending and state take; staging may take another slice's worth.
  int64_t memory_bytes() const;

 private:
  // What the shard knows of one member. Changed by Accept and Advance only.
  struct MemberState {
    Exchange first{1};
    Exchange accepted;  // last exchange accepted
    Exchange folded;    // last exchange folded
    // It rests once this exchange is folded.
    std::optional<Exchange> rests_after = std::nullopt;
    uint64_t rest_number = 0;  // of its latest word
    // The first exchange of it that was pushed here and need not be in a copy.
    std::optional<Exchange> heard_from = std::nullopt;
  };

  absl::Status Validate(ReceivedPush* push, const ExchangeForm::Found& of) const;
  // The word on `first` is awaited before this exchange may end.
  bool Holds(Exchange first, Exchange exchange) const;
  std::deque<StagedPush>::iterator NextStaged();
  bool AdvancePushes(absl::Time now);
  // Applies the update that is collected, and tells the form.
  void Commit(float scale, absl::Time now);
  // The update that is being committed, and its examples, which count from now on.
  Update BeginCommit(float scale);
  void CountStaleness(Version base);
  bool IsCopyDue() const;
  // ReadNow, and the checkpoint that has what exchange `after` brought.
  ReadResult ReadAfter(Exchange after);
  void Wake(MemberId id, MemberState* member);
  bool awaits_copy() const { return replica_ && replica_->awaits_copy(); }
  bool IsUnheard(MemberId member) const;
  int64_t OwnBytes(MemberId next) const;
  int64_t kept_bytes_max() const;
  absl::Status Follow(const FoldEvent& event);
  absl::Status Follow(const CommitEvent& event);
  absl::Status Follow(const ImageEvent& event);
  void RecordCommit(absl::Time now);
  void DropContained(const ReplicaTable& table);
  absl::Status CheckKept(const ReceivedPush& push, const MemberState& member) const;

  const ShardTraits traits_;
  const std::unique_ptr<ConsistencyPolicy> policy_;
  const std::unique_ptr<UpdateRule> rule_;
  const RateSchedule schedule_;
  const ShardLimits limits_;

  BlockStore store_;
  Plan plan_;
  absl::flat_hash_map<MemberId, MemberState> members_;
  std::unique_ptr<ExchangeForm> form_;
  std::optional<ReplicaCopying> replica_;  // set: every server holds all entries
  std::deque<StagedPush> staged_;          // complete pushes, in order of arrival
  ReaderGate gate_;                        // where folds wait for readers
  std::optional<CopyOrder> order_;         // a copy to be made
  CopyOrder copied_;                       // the last one that was made
  bool is_copied_here_ = true;             // not by the leader before this one
  std::vector<std::shared_ptr<std::vector<float>>> state_copies_;  // of the last copy, or free
  int64_t open_folds_ = 0;         // pushes folded since the last commit
  uint64_t pending_examples_ = 0;  // rows behind them
  std::deque<Removed> removed_;
  struct Open {
    uint64_t proposal = 0;
    Exchange first;
  };
  std::vector<Open> open_proposals_;
  bool is_loaded_ = false;
  bool advanced_pushes_ = false;
  bool records_ = false;
  std::vector<ShardEvent> recorded_;
  std::vector<std::shared_ptr<std::vector<float>>> sums_;  // of recorded commits, or free
  std::optional<float> followed_scale_;                    // of the commit that is to come
  int64_t reserved_bytes_ = 0;
  absl::flat_hash_map<MemberId, int64_t> reserved_;
  ShardCounters counters_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_H_
