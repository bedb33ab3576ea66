// Coordinator: to and from its state (proto/coordinator_state.proto).
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/control/coordinator.h"

namespace tessera {
namespace {

constexpr uint32_t kFormat = 1;

}  // namespace

uint64_t Coordinator::changes() const {
  return changes_ + membership_.changes() + epochs_.changes() + evaluation_.changes() +
         checkpoints_.changes() + (cores_ ? cores_->changes() : 0);
}

v1::CoordinatorState Coordinator::Save() const {
  v1::CoordinatorState state;
  SavedStates saved;
  state.set_format(kFormat);
  state.set_job_digest(facts_.digest);
  state.set_created(absl::ToUnixNanos(created_));
  state.set_phase(static_cast<uint32_t>(phase_));
  state.set_removed_late(removed_late_);
  state.set_outcome(static_cast<uint32_t>(outcome_.code()));
  state.set_failure(std::string(outcome_.message()));
  state.set_ending_since(absl::ToUnixNanos(ending_since_));
  state.set_ended_at(absl::ToUnixNanos(ended_at_));
  for (MemberId member : untold_) state.add_untold(member.value());
  for (MemberId member : late_) state.add_untold(member.value());
  state.set_rollbacks(rollbacks_);
  if (awaits_drain()) state.set_drain_since(absl::ToUnixNanos(drain_since_));
  for (const v1::TermState& term : terms_) *state.add_terms() = term;
  for (const Leaver& leaver : leavers_) {
    v1::LeaverState& saved_leaver = *state.add_leavers();
    saved_leaver.set_rank(leaver.rank);
    saved_leaver.set_life(leaver.life);
    saved_leaver.set_since(absl::ToUnixNanos(leaver.since));
    saved_leaver.set_checkpoint(leaver.checkpoint);
  }
  *state.mutable_clock() = clock_.Save();
  membership_.Save(&saved, state.mutable_membership());
  *state.mutable_epochs() = epochs_.SaveAll();
  *state.mutable_evaluation() = evaluation_.Save();
  *state.mutable_checkpoints() = checkpoints_.Save(&saved);
  if (cores_) *state.mutable_core() = cores_->Save();
  state.set_restored(saved.Add(facts_.restored));
  saved.Save(&state);
  return state;
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Load(JobFacts facts,
                                                               const v1::CoordinatorState& state) {
  const auto wrong = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("coordinator's state: ", why));
  };
  if (state.format() != kFormat) {
    return wrong(absl::StrCat("format is ", state.format(), ", want ", kFormat));
  }
  if (state.job_digest() != facts.digest) {
    return wrong(
        absl::StrCat("job digest is \"", state.job_digest(), "\", want \"", facts.digest, "\""));
  }
  absl::StatusOr<SavedStates> saved = SavedStates::Load(state);
  if (!saved.ok()) return wrong(saved.status().message());
  // What the job began from is in the state, whatever lies in checkpoint.restore by now.
  facts.restored = nullptr;
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator,
                           Create(std::move(facts), absl::FromUnixNanos(state.created())));
  const absl::Status loaded = coordinator->LoadAll(state, *saved);
  if (!loaded.ok()) return wrong(loaded.message());
  return coordinator;
}

absl::Status Coordinator::LoadAll(const v1::CoordinatorState& state, const SavedStates& saved) {
  if (state.phase() > static_cast<uint32_t>(Phase::kEnded)) {
    return absl::InvalidArgumentError(absl::StrCat("phase is ", state.phase()));
  }
  if (state.has_core() != cores_.has_value()) {
    return absl::InvalidArgumentError("it selects a core where the job does not, or the reverse");
  }
  TESSERA_RETURN_IF_ERROR(saved.Find(state.restored(), &facts_.restored));
  phase_ = static_cast<Phase>(state.phase());
  removed_late_ = state.removed_late();
  outcome_ = absl::Status(static_cast<absl::StatusCode>(state.outcome()), state.failure());
  ending_since_ = absl::FromUnixNanos(state.ending_since());
  ended_at_ = absl::FromUnixNanos(state.ended_at());
  rollbacks_ = state.rollbacks();
  drain_since_ =
      state.has_drain_since() ? absl::FromUnixNanos(state.drain_since()) : absl::InfiniteFuture();
  terms_.assign(state.terms().begin(), state.terms().end());
  leavers_.clear();
  for (const v1::LeaverState& leaver : state.leavers()) {
    leavers_.push_back(
        {leaver.rank(), leaver.life(), absl::FromUnixNanos(leaver.since()), leaver.checkpoint()});
  }
  clock_.Load(state.clock());
  TESSERA_RETURN_IF_ERROR(membership_.Load(state.membership(), saved));
  const MemberTable& members = membership_.members();
  untold_.clear();
  late_.clear();
  for (const uint64_t member : state.untold()) {
    const MemberRecord* const record = members.Find(MemberId(member));
    if (record == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("member ", member, ": there is none"));
    }
    (IsLive(record->state) ? untold_ : late_).insert(record->member);
  }
  TESSERA_RETURN_IF_ERROR(epochs_.Load(state.epochs(), members));
  TESSERA_RETURN_IF_ERROR(evaluation_.Load(state.evaluation(), members));
  TESSERA_RETURN_IF_ERROR(checkpoints_.Load(state.checkpoints(), saved));
  checkpoints_.SetSteps(membership_.exchange_steps());
  return cores_ ? cores_->Load(state.core()) : absl::OkStatus();
}

void Coordinator::Reconnect(absl::Time now) {
  membership_.Reconnect(now);
  evaluation_.Reconnect();
  checkpoints_.Reconnect(now);
  if (awaits_drain()) drain_since_ = now;
  for (Leaver& leaver : leavers_) leaver.since = now;
  ++changes_;
  Settle(now);
}

}  // namespace tessera
