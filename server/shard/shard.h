// The parameters one server process answers for, and the only code that writes them.
#ifndef TESSERA_SERVER_SHARD_SHARD_H_
#define TESSERA_SERVER_SHARD_SHARD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/keyset/named_keys.h"
#include "common/layout/shard_map.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/forms/exchange_form.h"
#include "server/shard/read_result.h"
#include "server/shard/reader_gate.h"
#include "server/shard/received_push.h"
#include "server/shard/replica_copying.h"
#include "server/shard/saved_shard.h"
#include "server/shard/shard_event.h"
#include "server/shard/shard_state.h"
#include "server/shard/update_log.h"

namespace tessera {

struct PushAccepted {
  bool duplicate = false;
  Version version;
  // The core is not known: nothing was accepted, push again with its keys.
  bool need_keys = false;
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
// A standby is told of a shard by a ShardRecorder, and follows it with a ShardFollower (log/). Where placement is
// replicated every server's shard is the whole model, and all fold the same pushes, whatever becomes of their senders:
// a push that was accepted is folded although its sender was removed (replica_copying.h).
//
// It has a few more public methods than other classes, as it says what its parts know where everybody asks: plan(),
// WaitsFor(), slices(), layout_hash().
class Shard {
 public:
  using Options = ShardOptions;
  using Removed = RemovedMember;

  explicit Shard(Options options);
  // Whether the values that it was made with could be read, without which it is of no use (InitialFile).
  const absl::Status& initial() const { return state_.initial; }

  // --- exchanges ---

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
  // A read outside the exchange: evaluation, joining. Never waits.
  ReadResult ReadNow() { return state_.ReadNow(); }

  // The place of a push that is arriving; false: there is none yet (PushStage::Reserve). The caller returns it with
  // Release unless Accept staged the push, whose reserved_bytes say how much.
  bool Reserve(MemberId member, int64_t bytes);
  void Release(MemberId member, int64_t bytes) { state_.stage.Release(member, bytes); }
  const PushStage& stage() const { return state_.stage; }
  // The members whose pushes are missing here: neither folded nor staged.
  std::vector<MemberId> WaitsFor() const { return state_.stage.WaitsFor(); }

  // --- membership: the coordinator's plan (docs/design/control.md) ---

  // `plan` counts from now on. Pushes of removed members that were not folded are dropped, but for
  // replicas. Returns those whom it removes.
  std::vector<Removed> SetPlan(const Plan& plan);
  // A member asks to be counted from `first` on. Returns the first exchange this shard can promise
  // it: `first`, or a later one. Until SetPlan or Withdraw settles it nothing of the promised
  // exchange is folded; where subnets or halves of the layers are trained, nothing of the one before, as its
  // end opens the promised one, and who is in that is not known yet.
  Exchange Propose(uint64_t proposal, Exchange first);
  // That proposal is void, and all before it: their numbers grow.
  void Withdraw(uint64_t proposal) { state_.members.Withdraw(proposal); }
  // `member` makes no pushes and nobody waits for it (it rests) from when its exchange `after` is folded, or it goes
  // on. A push after `after` ends its rest, too.
  void Rest(MemberId member, Exchange after, IdleNotice word) {
    state_.members.Rest(member, after, word);
  }
  const ShardMembers& members() const { return state_.members; }
  const Plan& plan() const { return state_.members.plan(); }
  // Its part in bringing joining replicas up to the others.
  ReplicaCopying& replica() { return replica_; }

  // --- checkpoints ---

  // CopyOrders::Order.
  absl::Status Order(const CopyOrder& order) { return state_.copies.Order(order); }
  // The copy that was ordered, where it is due now: call after every Advance. Parameters are shared
  // with the shard, block by block; states are copied.
  std::optional<ShardCopy> TakeCopy();
  // Takes up what a checkpoint has. To be called before anything else. Errors are read_rows'; the shard is of no use
  // after one.
  absl::Status Load(const SavedShard& saved);
  // It takes the place of one that had counted these.
  void CountOn(const ShardCounters& before) { state_.counters.CountOn(before); }

  // --- what it is ---

  // The selection of cores; nullptr where exchanges move none.
  CoreExchange* cores() const { return state_.form->cores(); }
  const ShardTraits& traits() const { return state_.traits; }
  const ShardSlices& slices() const { return state_.traits.slices; }
  uint64_t layout_hash() const { return state_.traits.layout_hash; }
  ShardCounters counters() const;
  // The sum over rows of a hash of (parameter, row, values).
  uint64_t ParametersHash() const;
  // Bytes that the store, pending and state take; staging may take another slice's worth.
  int64_t memory_bytes() const;

 private:
  friend class ShardFollower;
  friend class ShardRecorder;

  absl::Status Validate(ReceivedPush* push, const ExchangeForm::Found& of) const;
  // What has been promised to a member to come must be settled before `exchange` may end.
  bool IsHeld(Exchange exchange) const;
  bool AdvancePushes(absl::Time now);
  // Applies the update that is collected, and tells the form.
  void Commit(float scale, absl::Time now);
  bool IsCopyDue() const;

  ShardState state_;
  ReplicaCopying replica_;
  ReaderGate gate_;           // where folds wait for readers
  UpdateLog* log_ = nullptr;  // a ShardRecorder's, while it records
  std::vector<std::shared_ptr<std::vector<float>>> state_copies_;  // of the last copy, or free
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_H_
