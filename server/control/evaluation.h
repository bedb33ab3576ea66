// All members score the committed model together, while the job clock stands.
//
//   ARRIVE     everybody has stopped. The clock stops; places are dealt out in rank order.
//   CALIBRATE  place 0 gives constants, all get them.
//   SCORE      everybody has scored its rows. Sums are added in rank order, an entry joins the
//              history, the clock runs again unless training ends here.
//
// A member that is lost before all have arrived is no longer waited for; after that all begin again
// at ARRIVE with the next attempt, because the rows are dealt out anew.
#ifndef TESSERA_SERVER_CONTROL_EVALUATION_H_
#define TESSERA_SERVER_CONTROL_EVALUATION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "proto/status.pb.h"
#include "server/control/epochs.h"
#include "server/control/evaluation_seats.h"
#include "server/control/job_clock.h"
#include "server/control/members/member_table.h"

namespace tessera {

// Pure: requests and the time come in; answers that had to wait come out of TakeReplies.
class Evaluation {
 public:
  // All outlive it.
  Evaluation(const JobFacts& facts, JobClock* clock, const Epochs* epochs)
      : facts_(facts), clock_(clock), epochs_(epochs) {}

  struct Reply {
    MemberId member;
    v1::EvaluateReply reply;
    // It was removed while it waited; `reply` is empty.
    bool removed = false;
  };

  // One stage for one admitted member; the answer comes later, or at once, through TakeReplies. A
  // repeated request replaces the earlier one, so a retry is safe. `ending`: this evaluation ends
  // training; where members advance on their own, every one takes part in it.
  //   kInvalidArgument  an evaluation that is not the next one, scores that do not fit
  absl::Status OnRequest(const v1::EvaluateRequest& request, const MemberTable& members,
                         bool ending, absl::Time now);
  // Have all servers applied the latest plan? Until they have they may wait for members that are gone,
  // so that what is read from them need not be one model: nobody is told to begin before.
  void OnPlans(bool applied_by_all, absl::Time now);
  // Members came or went.
  void OnMembers(const MemberTable& members, absl::Time now);

  // The job goes back to where these had been made, and so many of those that are due at ends of epochs: whoever
  // waits is told that it is no member.
  void GoBack(const std::vector<v1::HistoryEntry>& history, uint64_t held);

  std::vector<Reply> TakeReplies();

  // From the first arrival to the last score.
  bool open() const { return stage_ != Stage::kClosed; }
  // Everybody has stopped.
  bool standing() const { return stage_ == Stage::kStanding; }
  // It takes part in the open evaluation or took part in the last one.
  bool Takes(const MemberRecord& member) const;
  // A request of it waits for its answer.
  bool IsParked(const MemberRecord& member) const;
  // For whom others wait in the open evaluation, by rank.
  std::vector<Rank> Missing() const;
  // How many evaluations that are due at ends of epochs have ended.
  uint64_t held() const { return held_; }
  // Training ends, or ended, with the last evaluation.
  bool stop() const { return stop_; }
  const std::vector<v1::HistoryEntry>& history() const { return history_; }

  // Grows whenever a stage begins or ends: what has only arrived will be said again.
  uint64_t changes() const { return changes_; }
  v1::EvaluationState Save() const;
  //   kInvalidArgument  a member or a stage that there is none of
  absl::Status Load(const v1::EvaluationState& state, const MemberTable& members);
  // Nobody waits for an answer any more: all who did will ask again.
  void Reconnect();

 private:
  enum class Stage {
    kClosed,
    kArriving,  // some have stopped, and wait for the others
    kStanding,  // all have
  };
  using Seat = EvaluationSeat;

  void Open(const v1::EvaluateRequest& request, const MemberTable& members, bool ending);
  const Seat* FindSeat(const MemberRecord& member) const;
  void AddSeat(const MemberRecord& member);
  // Where members advance on their own all are, wherever they begin: they have all left by that time, or
  // they come (JoinReply.evaluation_due). In lockstep those that begin after it are not.
  bool IsExpected(const MemberRecord& member) const;
  // It is due earlier than the first to arrive thought, which had joined past the last step.
  void DropLater(const MemberTable& members);
  void AnswerFinished(MemberId member);
  void Restart();
  // Answers whoever need not wait any longer.
  void Advance(absl::Time now);
  void Finish(absl::Time now);
  v1::EvaluateReply Fresh() const;
  // What those are told whose evaluation is over.
  v1::EvaluateReply ResultOf(const v1::HistoryEntry& entry) const;

  const JobFacts& facts_;
  JobClock* const clock_;
  const Epochs* const epochs_;

  Stage stage_ = Stage::kClosed;
  bool plans_applied_ = true;
  bool ending_ = false;
  uint64_t evaluation_ = 0;  // the open one, else the last
  uint64_t attempt_ = 0;
  uint64_t due_step_ = 0;
  uint64_t held_ = 0;
  EvaluationSeats seats_;
  uint64_t seen_ = 0;                     // of the members' changes
  std::optional<std::string> constants_;  // place 0's
  bool stop_ = false;
  v1::EvaluateReply result_;  // of the last one that ended
  std::vector<v1::HistoryEntry> history_;
  std::vector<Reply> replies_;
  // The last evaluation that a member was told of; live ones, when the next one begins.
  std::map<MemberId, uint64_t> told_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_EVALUATION_H_
