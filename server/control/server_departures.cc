#include "server/control/server_departures.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

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

uint64_t ServerDepartures::LifeOf(uint32_t rank) const {
  const ShardOwners* const owners = on_.membership.owners();
  return owners != nullptr ? owners->LifeOf(rank) : on_.membership.servers().at(ShardId(rank)).life;
}

void ServerDepartures::OnAsked(uint32_t rank, absl::Time now) {
  const uint64_t life = LifeOf(rank);
  const auto is_it = [&](const Leaver& leaver) {
    return leaver.rank == rank && leaver.life == life;
  };
  if (!on_.end.running() || life == 0) return;
  if (std::any_of(leavers_.begin(), leavers_.end(), is_it)) return;
  Log(LogLevel::kInfo, absl::StrCat("control: server is asked to end rank=", rank));
  leavers_.push_back({rank, life, now, 0});
  told_.erase(rank);
  ++changes_;
}

void ServerDepartures::Drive(absl::Time now) {
  // Nobody has asked anything of another process in its place.
  const auto is_gone = [this](const Leaver& leaver) {
    return !on_.end.running() || LifeOf(leaver.rank) != leaver.life;
  };
  const auto gone = std::remove_if(leavers_.begin(), leavers_.end(), is_gone);
  if (gone != leavers_.end()) ++changes_;
  leavers_.erase(gone, leavers_.end());
  ShardOwners* const owners = on_.membership.owners();
  while (!leavers_.empty()) {
    if (owners != nullptr) owners->SetLeaving(leavers_.front().rank, now);
    const v1::LeaveAnswer answer = Consider(&leavers_.front(), now);
    Tell(leavers_.front(), answer);
    if (!answer.may_end() && answer.instead().empty()) break;
    leavers_.erase(leavers_.begin());
    ++changes_;
  }
  if (leavers_.empty()) {
    if (owners != nullptr) owners->SetLeaving(std::nullopt, now);
    // A server that the job waits for comes back to a checkpoint, and that ends the hold.
    if (!on_.membership.paused()) on_.membership.admission().EndHold();
  }
  for (size_t i = 1; i < leavers_.size(); ++i) {
    Tell(leavers_[i], Waits({absl::StrCat("server ", leavers_.front().rank, " to end first")}));
  }
}

v1::LeaveAnswer ServerDepartures::Consider(Leaver* leaver, absl::Time now) {
  if (on_.membership.draining() || on_.training_end.awaits_drain()) {
    return Stays("the job is being drained");
  }
  if (on_.evaluation.stop()) return Stays("the job is about to end");
  // It has nothing yet, or nothing any more, that a checkpoint has not.
  if (!on_.membership.started()) return LetGo(*leaver, "", now);
  if (on_.facts.replicated) {
    if (on_.membership.CanDoWithout(ShardId(leaver->rank))) return LetGo(*leaver, "", now);
    return DrainInstead(*leaver, "no other server has a replica");
  }
  if (on_.membership.paused()) return LetGo(*leaver, "", now);
  const ShardOwners* const owners = on_.membership.owners();
  if (owners == nullptr) return AwaitCheckpoint(leaver, now);
  std::vector<std::string> waits = owners->LeavingWaitsFor(now);
  const bool is_patient =
      now - leaver->since < ShardOwners::kPatienceLeases * on_.facts.lease_timeout;
  if (waits.empty()) {
    // A leader that goes takes what it writes of a checkpoint along.
    if (!on_.checkpoints.order() || !is_patient) return LetGo(*leaver, "", now);
    return Waits({absl::StrCat("checkpoint ", on_.checkpoints.number(), " to be written")});
  }
  if (!owners->LeavesNobodyBehind() || is_patient) return Waits(std::move(waits));
  return AwaitCheckpoint(leaver, now);
}

v1::LeaveAnswer ServerDepartures::AwaitCheckpoint(Leaver* leaver, absl::Time now) {
  if (!on_.facts.checkpoints) {
    return DrainInstead(*leaver,
                        "its parameters would be lost: no other server can take them "
                        "over, and there is no checkpoint.directory");
  }
  if (leaver->checkpoint == 0) {
    leaver->checkpoint = on_.checkpoints.Ask();
    ++changes_;
  }
  if (on_.checkpoints.record().whole_number() >= leaver->checkpoint) {
    const uint64_t step = on_.checkpoints.last()->manifest.step;
    const auto epochs_done = static_cast<uint64_t>(on_.epochs.EpochsDone(step));
    if (on_.training_end.HasTrained(step, epochs_done)) return Stays("the job is about to end");
    if (on_.evaluation.standing()) return Waits({"the evaluation to end"});
    const std::string lost = on_.facts.synchronous && !on_.facts.subnets
                                 ? ""
                                 : absl::StrCat("members went on: what they learned since step ",
                                                step, " is learned again");
    return LetGo(*leaver, lost, now);
  }
  if (on_.checkpoints.record().failed_number() >= leaver->checkpoint) {
    if (!on_.membership.losses().CanGoBack()) {
      return DrainInstead(*leaver, "no checkpoint could be written, and there is no earlier one");
    }
    return LetGo(*leaver,
                 absl::StrCat("no checkpoint could be written: what was learned since step ",
                              on_.checkpoints.last()->manifest.step, " is learned again"),
                 now);
  }
  std::vector<std::string> waits = on_.checkpoints.Missing(on_.membership.members());
  if (waits.empty()) waits.push_back(absl::StrCat("checkpoint ", leaver->checkpoint));
  return Waits(std::move(waits));
}

v1::LeaveAnswer ServerDepartures::DrainInstead(const Leaver& leaver, absl::string_view why) {
  const std::string reason = absl::StrCat("server ", leaver.rank, " was asked to end, and ", why);
  Log(LogLevel::kWarning, absl::StrCat("control: drain reason=\"", reason, "\""));
  on_.end.SetStopReason(reason);
  on_.membership.Drain();
  return Stays(why);
}

v1::LeaveAnswer ServerDepartures::LetGo(const Leaver& leaver, absl::string_view lost,
                                        absl::Time now) {
  Log(lost.empty() ? LogLevel::kInfo : LogLevel::kWarning,
      absl::StrCat("control: server may end rank=", leaver.rank, lost.empty() ? "" : " lost=\"",
                   lost, lost.empty() ? "" : "\""));
  v1::LeaveAnswer answer;
  answer.set_may_end(true);
  answer.set_lost(std::string(lost));
  ++changes_;
  Tell(leaver, answer);
  if (ShardOwners* const owners = on_.membership.owners(); owners != nullptr) {
    owners->LetGo(leaver.rank, now);
    on_.driver.FollowLosses(now);
  } else {
    // It was told first: where servers are replicas it is refused from then on.
    on_.membership.LetGo(ShardId(leaver.rank));
  }
  return answer;
}

void ServerDepartures::Tell(const Leaver& leaver, const v1::LeaveAnswer& answer) {
  if (on_.membership.owners() != nullptr) {
    return on_.membership.owners()->SetLeaveAnswer(leaver.rank, answer);
  }
  std::string text = answer.SerializeAsString();
  if (told_[leaver.rank] == text) return;
  told_[leaver.rank] = std::move(text);
  v1::PlanMessage message;
  *message.mutable_leave() = answer;
  on_.membership.outbox().Tell(ShardId(leaver.rank), std::move(message));
}

void ServerDepartures::Reconnect(absl::Time now) {
  for (Leaver& leaver : leavers_) leaver.since = now;
}

void ServerDepartures::Save(v1::CoordinatorState* state) const {
  for (const Leaver& leaver : leavers_) {
    v1::LeaverState& saved = *state->add_leavers();
    saved.set_rank(leaver.rank);
    saved.set_life(leaver.life);
    saved.set_since(absl::ToUnixNanos(leaver.since));
    saved.set_checkpoint(leaver.checkpoint);
  }
}

void ServerDepartures::Load(const v1::CoordinatorState& state) {
  leavers_.clear();
  for (const v1::LeaverState& saved : state.leavers()) {
    leavers_.push_back(
        {saved.rank(), saved.life(), absl::FromUnixNanos(saved.since()), saved.checkpoint()});
  }
}

}  // namespace tessera
