// The workers of a job: ranks, leases and what each last said of itself.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_TABLE_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_TABLE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/members/forgotten_members.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_record.h"

namespace tessera {

// The number of ended members that keep a record; the others are kept as sums (forgotten_members.h).
constexpr size_t kEndedKept = 1024;

// It has more public methods than other classes, half of which find a member by what is known of it.
//
// Time comes in as an argument; nothing here locks or sleeps. Member ids count from 1 and are never
// used again.
class MemberTable {
 public:
  explicit MemberTable(const JobFacts& facts);

  // A worker that is not known yet, and passes JoinCheck with this rank, takes part; it waits from now on.
  MemberId Add(const v1::JoinRequest& request, Rank rank, absl::Time now);

  // Keeps the lease of a live member.
  //   kFailedPrecondition  it was removed; the message says when it was last heard, unless that was long ago
  //   kNotFound            there never was such a member
  absl::Status Touch(MemberId member, absl::Time now);
  // What the member counted, for the job's report; texts and numbers that are no worker's are cut. It may have ended.
  void SetReport(MemberId member, const v1::WorkerReport& report);

  void SetState(MemberRecord* record, MemberState state);
  // Ends a live member.
  void End(MemberId member, MemberState how, absl::string_view why);
  // Live members whose lease is over.
  std::vector<MemberId> Expired(absl::Time now) const;
  // Live members that keep their lease and go on with nothing.
  std::vector<MemberId> Stalled(absl::Time now) const;

  // Members that have ended, but for the last kEndedKept, the first to end first.
  std::vector<MemberId> EndedLongAgo() const;
  // Drops the record of a member that has ended, which has trained on so many rows since the job last went back.
  void Forget(MemberId member, uint64_t examples);
  // What the dropped records added up to.
  const v1::ForgottenMembers& forgotten() const { return forgotten_.sum(); }
  bool IsForgotten(MemberId member) const;
  // The job goes back to `step`: what all members did after it is undone.
  void UndoSince(uint64_t step);

  // nullptr: never existed, or is forgotten.
  MemberRecord* Find(MemberId member);
  const MemberRecord* Find(MemberId member) const;
  // All members that ever were and are not forgotten, by id.
  const std::map<MemberId, MemberRecord>& all() const { return records_; }
  // Members in this state, by rank.
  std::vector<MemberRecord*> In(MemberState state);
  // Members in the plan, by rank. Valid until a state changes.
  const std::vector<const MemberRecord*>& Counted() const;
  const MemberRecord* LiveAt(Rank rank) const;
  // The live member whose first request had this life; nullptr: there is none.
  const MemberRecord* LiveOf(uint64_t life) const;
  // Live members, by rank.
  const std::map<Rank, MemberId>& live() const { return live_; }
  // The member that came last.
  MemberId last() const { return MemberId(records_.size() + forgotten().count()); }
  // Grows with every change of a state.
  uint64_t changes() const { return changes_; }
  // The member of a plan that ended last did so of its own accord.
  bool last_left() const { return last_left_; }

  void Save(v1::MembershipState* state) const;
  //   kInvalidArgument  a member or rank that there cannot be
  absl::Status Load(const v1::MembershipState& state);
  // Every live member was heard just now.
  void ExtendLeases(absl::Time now);

 private:
  const JobFacts& facts_;
  std::map<MemberId, MemberRecord> records_;
  // What follows is asked for after every event, by jobs of a thousand workers: it is kept rather than searched for.
  std::map<Rank, MemberId> live_;
  absl::flat_hash_map<uint64_t, MemberId> by_life_;  // 0 is not in it
  std::array<size_t, static_cast<size_t>(MemberState::kMissed) + 1> in_state_{};
  std::map<uint64_t, MemberId> ended_;  // by MemberRecord.ending
  uint64_t endings_ = 0;                // the last one
  ForgottenMembers forgotten_;
  bool last_left_ = false;
  uint64_t changes_ = 0;
  mutable std::vector<const MemberRecord*> counted_;
  mutable uint64_t counted_at_ = 0;  // changes_ when counted_ was made
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_TABLE_H_
