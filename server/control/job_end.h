// The end of a job, from the moment when it is known how the job ended until all who take part in it have heard.
//
//   running
//   ending   no worker takes part any more, or the job cannot go on; servers are told to close
//   ended    every server has closed and, where the job failed, every worker was told why; or a lease has passed
#ifndef TESSERA_SERVER_CONTROL_JOB_END_H_
#define TESSERA_SERVER_CONTROL_JOB_END_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"

namespace tessera {

class JobEnd {
 public:
  // Both outlive it.
  JobEnd(const JobFacts& facts, const MemberTable& members) : facts_(facts), members_(members) {}

  bool running() const { return phase_ == Phase::kRunning; }
  bool ending() const { return phase_ == Phase::kEnding; }
  bool ended() const { return phase_ == Phase::kEnded; }
  absl::Time ended_at() const { return ended_at_; }
  // Once it no longer runs: OK, or why the job failed or was stopped.
  const absl::Status& outcome() const { return outcome_; }
  // Once it no longer runs: "finished", "stopped" or "failed" (proto/status.proto). Empty before.
  std::string OutcomeWord() const;

  // Somebody asked for the end, or the job would not have ended yet.
  bool is_stopped() const { return is_stopped_; }
  void SetStopped(bool is_stopped) { is_stopped_ = is_stopped; }
  // Why, as whoever asked first said; it may be known before it is known whether the job was stopped.
  const std::string& stop_reason() const { return stop_reason_; }
  // The first reason stays, unless it `replaces` that one.
  void SetStopReason(absl::string_view reason, bool replaces = false);

  // The job ends. Where it has failed, all members that are live are to be told.
  void Begin(absl::Status outcome, absl::Time now);
  // Others may take part than are known here: they have a lease to hear of the end.
  void SetHasStrangers() { has_strangers_ = true; }
  // A member that waited to be admitted when training ended is to be told.
  void AddLate(MemberId member) { late_.insert(member); }
  // Whether the member is one of these; it is told now.
  bool TellLate(MemberId member);
  // The member has heard how the job ended, or goes by itself.
  void OnTold(MemberId member) { untold_.erase(member); }
  // Why `member` may not go on, which it is told now; OK while the job runs.
  absl::Status Refusal(MemberId member);
  // From ending to ended, once all know or a lease has passed. `servers_closed`: all of them have.
  void Conclude(bool servers_closed, absl::Time now);

  uint64_t changes() const { return changes_; }
  void Save(v1::CoordinatorState* state) const;
  //   kInvalidArgument  a phase or a member that there is none of
  absl::Status Load(const v1::CoordinatorState& state);

 private:
  enum class Phase { kRunning, kEnding, kEnded };

  const JobFacts& facts_;
  const MemberTable& members_;
  Phase phase_ = Phase::kRunning;
  absl::Status outcome_;
  bool is_stopped_ = false;
  std::string stop_reason_;
  absl::Time ending_since_;
  absl::Time ended_at_;
  std::set<MemberId> untold_;  // live members when the job failed that do not know yet
  std::set<MemberId>
      late_;  // members that waited to be admitted when training ended and do not know yet
  bool has_strangers_ = false;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_JOB_END_H_
