// Servers that are asked to end while the job goes on: SIGTERM to one of them, as for a planned restart.
//
//   standbys     others follow what it followed; its standbys lead once they have all (ShardOwners). Nothing is done
//                again
//   checkpoints  one is made, and in lockstep nothing is folded after it; then the server may end, and the job waits
//                for it to be started again and goes back to that checkpoint
//   replicas     it and the worker beside it are removed; the others go on
//   otherwise    the job is drained
// One at a time: who was restarted may take over from the next.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "server/control/coordinator.h"

namespace tessera {
namespace {

v1::LeaveAnswer Waits(std::vector<std::string> names) {
  v1::LeaveAnswer answer;
  for (std::string& name : names) answer.add_waits_for(std::move(name));
  return answer;
}

v1::LeaveAnswer Stays(absl::string_view why) {
  v1::LeaveAnswer answer;
  answer.set_instead(std::string(why));
  return answer;
}

}  // namespace

uint64_t Coordinator::LifeOf(uint32_t rank) const {
  if (membership_.owners() != nullptr) return membership_.owners()->LifeOf(rank);
  return membership_.servers().at(ShardId(rank)).life;
}

void Coordinator::OnLeaves(uint32_t rank, absl::Time now) {
  const uint64_t life = LifeOf(rank);
  const auto is_it = [&](const Leaver& leaver) {
    return leaver.rank == rank && leaver.life == life;
  };
  if (phase_ != Phase::kRunning || life == 0) return;
  if (std::any_of(leavers_.begin(), leavers_.end(), is_it)) return;
  Log(LogLevel::kInfo, absl::StrCat("control: server is asked to end rank=", rank));
  leavers_.push_back({rank, life, now, 0});
  leave_told_.erase(rank);
  ++changes_;
}

void Coordinator::DriveLeaves(absl::Time now) {
  // Of another process in its place nobody has asked anything.
  const auto is_gone = [this](const Leaver& leaver) {
    return phase_ != Phase::kRunning || LifeOf(leaver.rank) != leaver.life;
  };
  const auto gone = std::remove_if(leavers_.begin(), leavers_.end(), is_gone);
  if (gone != leavers_.end()) ++changes_;
  leavers_.erase(gone, leavers_.end());
  while (!leavers_.empty()) {
    if (membership_.owners() != nullptr) {
      membership_.owners()->SetLeaving(leavers_.front().rank, now);
    }
    const v1::LeaveAnswer answer = Consider(&leavers_.front(), now);
    TellLeaver(leavers_.front(), answer);
    if (!answer.may_end() && answer.instead().empty()) break;
    leavers_.erase(leavers_.begin());
    ++changes_;
  }
  if (leavers_.empty()) {
    if (membership_.owners() != nullptr) membership_.owners()->SetLeaving(std::nullopt, now);
    // One that the job waits for comes back to a checkpoint, and that ends it.
    if (!membership_.paused()) membership_.EndHold();
  }
  for (size_t i = 1; i < leavers_.size(); ++i) {
    TellLeaver(leavers_[i],
               Waits({absl::StrCat("server ", leavers_.front().rank, " to end first")}));
  }
}

v1::LeaveAnswer Coordinator::Consider(Leaver* leaver, absl::Time now) {
  if (membership_.draining() || awaits_drain()) return Stays("the job is being drained");
  if (evaluation_.stop()) return Stays("the job is about to end");
  // It has nothing yet, or nothing any more, that a checkpoint has not.
  if (!membership_.started()) return LetGo(*leaver, "", now);
  if (facts_.replicated) {
    if (membership_.CanDoWithout(ShardId(leaver->rank))) return LetGo(*leaver, "", now);
    return DrainInstead(*leaver, "no other server has a replica");
  }
  if (membership_.paused()) return LetGo(*leaver, "", now);
  const ShardOwners* const owners = membership_.owners();
  if (owners == nullptr) return AwaitCheckpoint(leaver, now);
  std::vector<std::string> waits = owners->LeavingWaitsFor(now);
  const bool is_patient = now - leaver->since < ShardOwners::kPatienceLeases * facts_.lease_timeout;
  if (waits.empty()) {
    // A leader that goes takes what it writes of a checkpoint along.
    if (!checkpoints_.order() || !is_patient) return LetGo(*leaver, "", now);
    return Waits({absl::StrCat("checkpoint ", checkpoints_.number(), " to be written")});
  }
  if (!owners->LeavesNobodyBehind() || is_patient) return Waits(std::move(waits));
  return AwaitCheckpoint(leaver, now);
}

v1::LeaveAnswer Coordinator::AwaitCheckpoint(Leaver* leaver, absl::Time now) {
  if (!facts_.checkpoints) {
    return DrainInstead(*leaver,
                        "its parameters would be lost: no other server can take them "
                        "over, and there is no checkpoint.directory");
  }
  if (leaver->checkpoint == 0) {
    leaver->checkpoint = checkpoints_.Ask();
    ++changes_;
  }
  if (checkpoints_.whole_number() >= leaver->checkpoint) {
    const uint64_t step = checkpoints_.last()->manifest.step;
    if (HasTrained(step, epochs_.EpochsDone(step))) return Stays("the job is about to end");
    if (evaluation_.standing()) return Waits({"the evaluation to end"});
    const std::string lost = facts_.synchronous && !facts_.subnets
                                 ? ""
                                 : absl::StrCat("members went on: what they learned since step ",
                                                step, " is learned again");
    return LetGo(*leaver, lost, now);
  }
  if (checkpoints_.failed_number() >= leaver->checkpoint) {
    if (!membership_.CanGoBack()) {
      return DrainInstead(*leaver, "no checkpoint could be written, and there is no earlier one");
    }
    return LetGo(*leaver,
                 absl::StrCat("no checkpoint could be written: what was learned since step ",
                              checkpoints_.last()->manifest.step, " is learned again"),
                 now);
  }
  std::vector<std::string> waits = checkpoints_.Missing(membership_.members());
  if (waits.empty()) waits.push_back(absl::StrCat("checkpoint ", leaver->checkpoint));
  return Waits(std::move(waits));
}

v1::LeaveAnswer Coordinator::DrainInstead(const Leaver& leaver, absl::string_view why) {
  const std::string reason = absl::StrCat("server ", leaver.rank, " was asked to end, and ", why);
  Log(LogLevel::kWarning, absl::StrCat("control: drain reason=\"", reason, "\""));
  if (stop_reason_.empty()) stop_reason_ = reason;
  membership_.Drain();
  return Stays(why);
}

v1::LeaveAnswer Coordinator::LetGo(const Leaver& leaver, absl::string_view lost, absl::Time now) {
  Log(lost.empty() ? LogLevel::kInfo : LogLevel::kWarning,
      absl::StrCat("control: server may end rank=", leaver.rank, lost.empty() ? "" : " lost=\"",
                   lost, lost.empty() ? "" : "\""));
  v1::LeaveAnswer answer;
  answer.set_may_end(true);
  answer.set_lost(std::string(lost));
  ++changes_;
  if (membership_.owners() == nullptr) {
    // Told first: where servers are replicas it is refused from then on.
    TellLeaver(leaver, answer);
    membership_.LetGo(ShardId(leaver.rank));
    return answer;
  }
  membership_.owners()->SetLeaveAnswer(leaver.rank, answer);
  membership_.owners()->LetGo(leaver.rank, now);
  FollowLosses(now);
  return answer;
}

void Coordinator::TellLeaver(const Leaver& leaver, const v1::LeaveAnswer& answer) {
  if (membership_.owners() != nullptr) {
    return membership_.owners()->SetLeaveAnswer(leaver.rank, answer);
  }
  std::string text = answer.SerializeAsString();
  if (leave_told_[leaver.rank] == text) return;
  leave_told_[leaver.rank] = std::move(text);
  v1::PlanMessage message;
  *message.mutable_leave() = answer;
  membership_.Tell(ShardId(leaver.rank), std::move(message));
}

}  // namespace tessera
