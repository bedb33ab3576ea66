// One life of one worker in a job: from the request with which it joins to its end, and for the report beyond.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_RECORD_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_RECORD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/members/stall_watch.h"

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
// The member ended when the job went back, and its worker is told to join anew.
inline bool MayRejoin(MemberState state) {
  return state == MemberState::kRejoins || state == MemberState::kMissed;
}
// The member ended, and not of its own accord.
inline bool IsLost(MemberState state) {
  return state == MemberState::kFailed || state == MemberState::kLost ||
         state == MemberState::kMissed;
}

// What the coordinator knows of one worker: what it said as it joined, what it says as it goes on, what it was told.
// It has more fields than other types because each of these is written by another part, and all are saved together.
//
// Kept after the member's end until many others have ended since.
struct MemberRecord {
  MemberId member;
  Rank rank;
  MemberState state = MemberState::kWaiting;
  // The worker's process, by a number that it drew.
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
  // The drain's exchange, once the member has heard of it.
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

  // What the worker says of itself. An older message that comes late changes nothing.
  void OnProgress(const v1::Progress& said, absl::Time now);
  // The job goes back to `step`: nobody is to count by what the member did since.
  void UndoSince(uint64_t step);

  // All servers have said which exchange they counted last, and not the same.
  bool has_partial_push() const;
  // Members that only waited had no part, and those that join anew are counted as what they join as.
  bool had_part() const { return had_begun() && state != MemberState::kRejoins; }
  bool had_begun() const { return first_exchange != Exchange(); }
  // An evaluation at `step` is not its.
  bool BeginsAfter(uint64_t step) const {
    return restored ? first_step > step : first_step >= step;
  }

  void Save(v1::MemberState* saved) const;
  //   kInvalidArgument  a rank or state that there cannot be
  static absl::StatusOr<MemberRecord> Load(const v1::MemberState& saved);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_MEMBER_RECORD_H_
