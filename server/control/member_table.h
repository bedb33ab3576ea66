// The workers of a job: ranks, leases and what each last said of itself.
#ifndef TESSERA_SERVER_CONTROL_MEMBER_TABLE_H_
#define TESSERA_SERVER_CONTROL_MEMBER_TABLE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"
#include "server/control/stall_watch.h"

namespace tessera {

enum class MemberState {
  kWaiting,   // joined; for the start, or for its turn to be proposed
  kProposed,  // the servers are being asked from which exchange on it counts
  kPlanned,   // in the plan, which some servers have not applied yet
  kAdmitted,  // takes part
  kLeft,      // finished
  kFailed,    // gave up, and said so
  kLost,      // its lease expired, or its training stood still
  kRejoins,   // the job went back to a checkpoint, and the worker joins as another member
  kMissed,    // it had yet to do so when the job went on without it: lost, but may come late
};

inline bool IsLive(MemberState state) { return state <= MemberState::kAdmitted; }
inline bool IsCounted(MemberState state) {
  return state == MemberState::kPlanned || state == MemberState::kAdmitted;
}
// It ended when the job went back, and its worker is told to join anew.
inline bool MayRejoin(MemberState state) {
  return state == MemberState::kRejoins || state == MemberState::kMissed;
}
// Not of its own accord.
inline bool IsLost(MemberState state) {
  return state == MemberState::kFailed || state == MemberState::kLost ||
         state == MemberState::kMissed;
}

// One life of one worker. Kept after its end, for the report, until many others have ended since.
struct MemberRecord {
  MemberId member;
  Rank rank;
  MemberState state = MemberState::kWaiting;
  uint64_t life = 0;
  std::string description;
  // Where other workers reach it; empty: they need not.
  std::string address;
  uint64_t rows = 0;
  uint64_t train_sum = 0;
  uint64_t test_sum = 0;
  v1::ValueKind values = v1::VALUES_UNKNOWN;
  // Why it ended, in words.
  std::string ended;
  // Grows from one that ended to the next; 0: it has not ended.
  uint64_t ending = 0;
  absl::Time last_heard;
  absl::Time progressed_at;
  v1::Progress progress;
  StallWatch stall;
  double examples_per_second = 0;
  // Set when it is planned.
  Exchange first_exchange;
  uint64_t first_step = 0;
  Generation planned_in;
  // It goes on from a checkpoint of first_step: what is due there is due for it.
  bool restored = false;
  uint64_t drain_seen = 0;
  // Subnets: it was removed, and is a site of the rounds before this one; 0: not agreed on yet.
  std::optional<Exchange> site_until;
  // It writes checkpoints from the one after this number on; nullopt: it was not told yet.
  std::optional<uint64_t> told_checkpoint;
  // It has said that it stands at the end of its warm-up until others begin. It goes on saying so.
  bool awaits_others = false;
  std::optional<v1::WorkerReport> report;
  // After its removal: the servers that had all pushes until then, and the last exchange of it that each of
  // them counted, as the one that leads the shard said last.
  std::set<ShardId> counted_by;
  std::map<ShardId, Exchange> last_counted;

  // All of them have said so, and not the same.
  bool has_partial_push() const;

  // Those that only waited had none, and those that join anew are counted as what they join as.
  bool had_part() const { return had_begun() && state != MemberState::kRejoins; }
  bool had_begun() const { return first_exchange != Exchange(); }

  // An evaluation at `step` is not its.
  bool BeginsAfter(uint64_t step) const {
    return restored ? first_step > step : first_step >= step;
  }
};

// Of so many members that have ended there are records; of the others sums are enough.
constexpr size_t kEndedKept = 1024;

// Time comes in as an argument; nothing here locks or sleeps. Member ids count from 1 and are never
// used again.
class MemberTable {
 public:
  explicit MemberTable(const JobFacts& facts);

  // A worker that is not known yet asks to take part; it waits from now on. A repeated first
  // request (same life) finds its member. Nothing changes on error:
  //   kInvalidArgument  digest, layout, protocol, rank, rows or address are not the job's
  //   kAlreadyExists    a live member holds the wanted rank
  absl::StatusOr<MemberId> Add(const v1::JoinRequest& request, absl::Time now);

  // Keeps the lease of a live member.
  //   kFailedPrecondition  it was removed; the message says when it was last heard, unless that was long ago
  //   kNotFound            there never was such a member
  absl::Status Touch(MemberId member, absl::Time now);
  void OnProgress(MemberId member, const v1::Progress& progress, absl::Time now);

  // What it counted, for the job's report; texts and numbers that are no worker's are cut. Also after its end.
  void SetReport(MemberId member, const v1::WorkerReport& report);

  void SetState(MemberRecord* record, MemberState state);
  // Ends a live member.
  void End(MemberId member, MemberState how, absl::string_view why);
  // Live members whose lease is over.
  std::vector<MemberId> Expired(absl::Time now) const;
  // Live members that keep their lease and go on with nothing.
  std::vector<MemberId> Stalled(absl::Time now) const;

  // --- of members that ended long ago no records are kept ---

  // Those that have ended, but for the last kEndedKept, the first to end first.
  std::vector<MemberId> EndedLongAgo() const;
  // Drops the record of one that has ended, which has trained on so many rows since the job last went back.
  void Forget(MemberId member, uint64_t examples);
  // What the dropped records added up to.
  const v1::ForgottenMembers& forgotten() const { return forgotten_; }
  bool IsForgotten(MemberId member) const;
  // The job goes back to `step`: what they did after it is undone.
  void UndoForgotten(uint64_t step);

  // nullptr: never existed, or is forgotten.
  MemberRecord* Find(MemberId member);
  const MemberRecord* Find(MemberId member) const;
  // By id, all that ever were and are not forgotten.
  const std::map<MemberId, MemberRecord>& all() const { return records_; }
  // Members in this state, by rank.
  std::vector<MemberRecord*> In(MemberState state);
  // Those in the plan, by rank. Valid until a state changes.
  const std::vector<const MemberRecord*>& Counted() const;
  const MemberRecord* LiveAt(Rank rank) const;
  // Whose first request had this life; nullptr: nobody's, or it is no member any more.
  const MemberRecord* LiveOf(uint64_t life) const;
  bool has_live() const { return !live_.empty(); }
  // The member that came last.
  MemberId last() const { return MemberId(records_.size() + forgotten_.count()); }
  // Grows with every change of a state.
  uint64_t changes() const { return changes_; }
  Exchange HighestExchange() const;
  // Of those in the plan; where there is none, where another one goes on.
  uint64_t LeastStep() const;
  Exchange LeastExchange() const;
  // A share of facts.local_steps in proportion to the member's speed, all of them for the fastest;
  // at least 1. 0 while its speed is not known.
  // Liu, Chhaparia, Douillard et al.: Asynchronous Local-SGD Training for Language Modeling, 2024,
  // dynamic local updates.
  uint64_t StepBudget(MemberId member) const;

  void Save(v1::MembershipState* state) const;
  //   kInvalidArgument  a member or rank that there cannot be
  absl::Status Load(const v1::MembershipState& state);
  // Every live member was heard just now.
  void ExtendLeases(absl::Time now);

 private:
  absl::Status Check(const v1::JoinRequest& request) const;
  absl::Status CheckRows(const v1::JoinRequest& request) const;
  // Refuses data of another kind than that of live members.
  absl::Status CheckValues(const v1::JoinRequest& request) const;
  // Where workers train different layers.
  absl::Status CheckLayers(Rank rank, const v1::JoinRequest& request) const;

  static absl::StatusOr<MemberRecord> LoadRecord(const v1::MemberState& state);

  const JobFacts& facts_;
  std::map<MemberId, MemberRecord> records_;
  // Found again after every event, by jobs of a thousand workers: kept rather than searched for.
  std::map<Rank, MemberId> live_;
  absl::flat_hash_map<uint64_t, MemberId> by_life_;  // 0 is not in it
  std::array<size_t, static_cast<size_t>(MemberState::kMissed) + 1> in_state_{};
  std::map<uint64_t, MemberId> ended_;  // by MemberRecord.ending
  uint64_t endings_ = 0;                // the last one
  v1::ForgottenMembers forgotten_;
  uint64_t changes_ = 0;
  mutable std::vector<const MemberRecord*> counted_;
  mutable uint64_t counted_at_ = 0;  // changes_ when counted_ was made
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBER_TABLE_H_
