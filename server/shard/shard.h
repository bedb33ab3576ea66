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
#include "common/keyset/subnet.h"
#include "common/layout/layer_cut.h"
#include "common/layout/shard_map.h"
#include "common/rule/rule.h"
#include "common/rule/schedule.h"
#include "server/shard/block_store.h"
#include "server/shard/checkpoint_mark.h"
#include "server/shard/core_exchange.h"
#include "server/shard/exchange_form.h"
#include "server/shard/layer_halves.h"
#include "server/shard/reader_gate.h"
#include "server/shard/received_push.h"
#include "server/shard/replica_copying.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_event.h"
#include "server/shard/shard_memory.h"
#include "server/shard/site_subnet.h"
#include "server/shard/subnet_rounds.h"

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
};

// As above, and the entries that the reader asked for. nullptr: their core is not known.
struct SparseReadResult {
  std::shared_ptr<const SparsePlace> place;
  ReadResult read;
};

// As above, and which of it the reader asked for. nullptr: exchanges are of all entries by now.
struct SubnetReadResult {
  std::shared_ptr<const SiteSubnet> site;
  ReadResult read;
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

// What a shard begins with instead of initial values.
struct SavedShard {
  // Rows [row_begin, row_end) of a parameter; of its state where that is not -1.
  std::function<absl::Status(int parameter, int state, int64_t row_begin, int64_t row_end,
                             float* out)>
      read_rows;
  // version, pushes, staleness, examples.
  ShardCounters counters;
  // The last exchange in the values; 0 where members advance on their own.
  Exchange exchange;
  bool whole_next = false;
  // CoreShare::every of the job that saved it; 0: as this one's.
  uint64_t core_every = 0;
  // UpdateRule::divisor of each state in the job that saved it; empty: as this one's.
  std::vector<float> divisors;
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
// Where the job's method trains subnets, exchange e is round e, and every member of the round is a
// site (common/keyset/subnet.h): a push replaces the site's entries as it is folded, the commit
// averages the shared ones, and no rule is applied. Values are of a round's end only between its
// commit and the first fold of the next.
//
// Such a job may end with exchanges of all entries (Options::whole_kind), which are folded and applied
// as they are without subnets. Members say so one exchange ahead, so that whoever comes new can be
// told; all pushes of an exchange must be of one kind and say the same of the next one. Once an
// exchange was of all entries, all are.
//
// Where the layers are cut in two (Options::cut) every push is of one half, or of none: each half is updated by the
// mean of what the members pushed of it, and one of which nothing was pushed stays as it is (layer_halves.h).
//
// Where placement is replicated every server's shard is the whole model, and all fold the same pushes,
// whatever becomes of their senders: a push that was accepted is folded although its sender was removed.
// One that joins a running job keeps what is pushed until it has a copy (replica.h has the steps).
class Shard {
 public:
  struct Options {
    ModelShape shape;
    ShardId shard;
    int shard_count = 1;
    uint64_t seed = 0;
    // The payload that the job's method sends, and how values are written.
    int kind = 0;
    CodecChoice codecs;
    // Replicated: `shard` is 0 of 1, and members advance on their own.
    Placement placement = Placement::kSharded;
    std::unique_ptr<ConsistencyPolicy> policy;
    std::unique_ptr<UpdateRule> rule;
    // Of the rule's learning rate.
    RateSchedule schedule;
    // Set: the method trains subnets, under a barrier.
    std::optional<NeuronGroups> groups;
    // Beside groups: the payload of exchanges of all entries, where the job ends with such.
    std::optional<int> whole_kind;
    // Set: exchanges move a core and an explorer, but for every q-th push (core_exchange.h). The
    // rule keeps no state, and the push codec holds nothing back.
    std::optional<CoreShare> core;
    // Set: a push is of the layers on one side of it, under a barrier. Not beside groups, core or replicas.
    std::optional<LayerCut> cut;
    // nullopt: those of PlanShardMemory where memory is not limited.
    std::optional<ShardLimits> limits;
    // Load comes next, before which the values may be any: initial ones need not be made.
    bool awaits_load = false;
  };

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

  // The current values, or nullopt while the policy makes this member wait. kFailedPrecondition:
  // not a member.
  absl::StatusOr<std::optional<ReadResult>> Read(MemberId member, Exchange after);
  // Where subnets are trained: the current values for this member's place in `round`, or nullopt
  // while that is to open yet. kFailedPrecondition: not a member or a site, or `round` is over.
  absl::StatusOr<std::optional<SubnetReadResult>> ReadSubnet(MemberId member, Exchange round);
  // Where exchanges move a core: the values of the member's entries in exchange `after`, as Read.
  absl::StatusOr<std::optional<SparseReadResult>> ReadSparse(MemberId member, Exchange after,
                                                             const CoreName& core);
  // The core of this number or a later one; nullopt: it is not selected yet. Codes as Read.
  absl::StatusOr<std::optional<std::shared_ptr<const Core>>> ReadCore(MemberId member,
                                                                      uint64_t number);
  // `member` rests from when its exchange `after` is folded, or it goes on. A push after `after`
  // ends its rest, too.
  void Rest(MemberId member, Exchange after, RestWord word);
  // A read outside the exchange: evaluation, joining. Never waits.
  ReadResult ReadNow();

  // --- replicas (shard_replica.cc) ---

  bool is_replica() const { return replica_.has_value(); }
  // This server has joined a running job: from now on pushes are kept, and nothing is folded or read,
  // until TakeCopy. No effect once there was one.
  void AwaitCopy();
  // Every member of the plan has pushed here, so that a copy made from now on has what was pushed before.
  bool HeardFromAll() const;
  // So, or there is so much here by now that some of it should go, which is what any copy contains.
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
  // Of all plans so far, the newest kRemovedMax.
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

  // --- checkpoints (shard_copies.cc) ---

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

  // nullptr: the layers are not cut.
  std::shared_ptr<const LayerParts> layer_parts() const {
    return halves_ ? halves_->parts() : nullptr;
  }
  // nullptr: all entries are moved, or subnets, or layers.
  CoreExchange* cores() { return cores_.get(); }
  const CoreExchange* cores() const { return cores_.get(); }
  ShardId id() const { return id_; }
  const ShardSlices& slices() const { return slices_; }
  const ModelShape& shape() const { return shape_; }
  uint64_t layout_hash() const { return layout_hash_; }
  bool trains_subnets() const { return rounds_.has_value(); }
  uint64_t seed() const { return seed_; }
  const CodecChoice& codecs() const { return codecs_; }
  // All entries, as pushes and pulls have them.
  const CodedForms& dense_forms() const { return dense_forms_; }
  // Pushes may be of all entries.
  bool takes_whole() const { return !halves_ && (!rounds_ || forms_.has_value()); }
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
  // What a payload is of: a subnet, a core and an explorer, layers, or all entries.
  struct PushedEntries {
    std::shared_ptr<const SiteSubnet> site;
    std::shared_ptr<const SparsePlace> place;
    const LayerPart* part = nullptr;
    bool need_keys = false;
  };
  struct Staged : ReceivedPush {
    PushedEntries of;
    const CodedKeys* keys = nullptr;  // of the payload; nullptr: its codec is selective
  };

  absl::Status Validate(ReceivedPush* push, const PushedEntries& of) const;
  const CodedKeys* KeysOf(const Codec& codec, const PushedEntries& of) const;
  std::string DescribeEntryOf(const PushedEntries& of, int64_t entry) const;
  absl::StatusOr<PushedEntries> EntriesOf(const ReceivedPush& push);
  absl::StatusOr<std::shared_ptr<const SiteSubnet>> SiteOf(const ReceivedPush& push);
  void OpenRound();
  // Who takes part in an exchange is known before it begins.
  bool knows_members() const { return rounds_.has_value() || halves_.has_value(); }
  // The word on `first` is awaited before this exchange may end.
  bool Holds(Exchange first, Exchange exchange) const;
  std::deque<Staged>::iterator NextStaged();
  void Fold(const Staged& push, float weight);
  void FoldAndCommit(const Staged& push, const Verdict& verdict);
  bool AppliesSent(const Staged& push) const;
  void FoldHalf(const Staged& push, bool commits);
  void CommitHalves();
  void Commit(float scale, absl::Time now);
  void CommitRound();
  bool AdvancePushes(absl::Time now);
  void CommitEntries(float scale);
  void MaybeSelectCore();
  bool PrepareKeys();
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

  const ModelShape shape_;
  const ShardId id_;
  const ShardSlices slices_;
  const uint64_t layout_hash_;
  const uint64_t seed_;
  const CodecChoice codecs_;
  const CodedForms dense_forms_;
  const int kind_;
  const std::optional<int> whole_kind_;
  const std::unique_ptr<ConsistencyPolicy> policy_;
  const std::unique_ptr<UpdateRule> rule_;
  const RateSchedule schedule_;
  const ShardLimits limits_;

  BlockStore store_;
  std::vector<float> pending_;             // one slice's worth, used where updates are sums
  std::vector<std::vector<float>> state_;  // the rule's, each one slice's worth
  std::optional<SubnetRounds> rounds_;     // set: subnets are trained, without state_
  Exchange opened_round_;                  // as rounds_ has it, by the plan opened_plan_
  Generation opened_plan_;
  std::optional<ExchangeForms> forms_;     // set: exchanges may be of all entries, too
  std::optional<ReplicaCopying> replica_;  // set: every server holds all entries
  std::optional<LayerHalves> halves_;      // set: a push is of one half of the layers
  std::unique_ptr<CoreExchange> cores_;    // set: exchanges move a core; without pending_, state_
  std::deque<Staged> staged_;              // complete pushes, in order of arrival
  ReaderGate gate_;                        // where folds wait for readers
  std::optional<CopyOrder> order_;         // a copy to be made
  CopyOrder copied_;                       // the last one that was made
  bool is_copied_here_ = true;             // not by the leader before this one
  std::vector<std::shared_ptr<std::vector<float>>> state_copies_;  // of the last copy, or free
  int64_t pending_count_ = 0;                                      // pushes folded into pending_
  int64_t open_folds_ = 0;         // pushes folded since the last commit
  uint64_t pending_examples_ = 0;  // rows behind them
  Plan plan_;
  absl::flat_hash_map<MemberId, MemberState> members_;
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
