// Membership: to and from the coordinator's state.
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/control/membership.h"

namespace tessera {

void Membership::Save(SavedStates* saved, v1::MembershipState* state) const {
  servers_.Save(state);
  members_.Save(state);
  parts_.Save(state->mutable_shares());
  if (owners_) *state->mutable_owners() = owners_->Save();
  state->set_started(started_);
  state->set_closed(closed_);
  state->set_closed_failure(closed_failure_);
  state->set_generation(generation_.value());
  state->set_last_proposal(last_proposal_);
  if (open_) {
    v1::OpenProposal& open = *state->mutable_open();
    open.set_joiner(open_->joiner.value());
    open.set_recut(open_->recut);
    open.set_checkpoint(open_->checkpoint);
    open.set_hold(open_->hold);
    if (open_->shares) {
      v1::PartShares& shares = *open.mutable_shares();
      for (const auto& [member, share] : *open_->shares) {
        shares.add_members(member.value());
        shares.add_shares(share);
      }
    }
    open_->agreement.Save(&open);
  }
  state->set_training_over(training_over_);
  state->set_last_left(last_left_);
  state->set_drain_wanted(drain_wanted_);
  state->set_drain_agreed(drain_agreed_);
  state->set_drain_released(drain_released_);
  state->set_drain_exchange(drain_exchange_.value());
  state->set_sites_begin(sites_begin_.value());
  state->set_partial_pushes(partial_pushes_);
  state->set_residuals_lost(residuals_lost_);
  state->set_server_list_generation(server_list_generation_);
  if (checkpoint_first_) state->set_checkpoint_first(checkpoint_first_->value());
  if (agreed_checkpoint_) state->set_agreed_checkpoint(agreed_checkpoint_->value());
  if (checkpoint_order_) *state->mutable_checkpoint_order() = *checkpoint_order_;
  state->set_first_plan(first_plan_.value());
  state->set_restore_generation(restore_generation_.value());
  state->set_paused(paused_);
  if (failure_) state->set_failure(*failure_);
  state->set_saved(saved->Add(saved_));
  state->set_begun_from(saved->Add(begun_from_));
  start_list_.Save(state);
}

absl::Status Membership::Load(const v1::MembershipState& state, const SavedStates& saved) {
  TESSERA_RETURN_IF_ERROR(servers_.Load(state));
  TESSERA_RETURN_IF_ERROR(members_.Load(state));
  parts_.Load(state.shares());
  if (state.has_owners() != owners_.has_value()) {
    return absl::InvalidArgumentError("it has standbys where the job does not, or the reverse");
  }
  if (owners_) TESSERA_RETURN_IF_ERROR(owners_->Load(state.owners()));
  started_ = state.started();
  closed_ = state.closed();
  closed_failure_ = state.closed_failure();
  generation_ = Generation(state.generation());
  last_proposal_ = state.last_proposal();
  open_.reset();
  if (state.has_open()) {
    const v1::OpenProposal& open = state.open();
    const MemberRecord* joiner = members_.Find(MemberId(open.joiner()));
    if (open.joiner() != 0 && (joiner == nullptr || joiner->state != MemberState::kProposed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", open.joiner(), " is none that is to be agreed on"));
    }
    std::optional<Parts::Shares> shares;
    if (open.has_shares()) {
      shares.emplace();
      const int count = std::min(open.shares().members_size(), open.shares().shares_size());
      for (int i = 0; i < count; ++i) {
        shares->push_back({MemberId(open.shares().members(i)), open.shares().shares(i)});
      }
    }
    open_ = OpenProposal{MemberId(open.joiner()), open.recut(),
                         std::move(shares),       Agreement::Load(open, servers_.count()),
                         open.checkpoint(),       open.hold()};
  }
  const bool is_proposed = !members_.In(MemberState::kProposed).empty();
  // A job that ends asks nobody any more.
  if (!closed_ && is_proposed != (open_ && open_->joiner != MemberId())) {
    return absl::InvalidArgumentError("a member is to be agreed on, and nobody was asked");
  }
  training_over_ = state.training_over();
  last_left_ = state.last_left();
  drain_wanted_ = state.drain_wanted();
  drain_agreed_ = state.drain_agreed();
  drain_released_ = state.drain_released();
  drain_exchange_ = Exchange(state.drain_exchange());
  sites_begin_ = Exchange(state.sites_begin());
  partial_pushes_ = state.partial_pushes();
  residuals_lost_ = state.residuals_lost();
  server_list_generation_ = state.server_list_generation();
  checkpoint_first_.reset();
  if (state.has_checkpoint_first()) checkpoint_first_ = Exchange(state.checkpoint_first());
  agreed_checkpoint_.reset();
  if (state.has_agreed_checkpoint()) agreed_checkpoint_ = Exchange(state.agreed_checkpoint());
  checkpoint_order_.reset();
  if (state.has_checkpoint_order()) checkpoint_order_ = state.checkpoint_order();
  first_plan_ = Generation(state.first_plan());
  restore_generation_ = Generation(state.restore_generation());
  paused_ = state.paused();
  failure_.reset();
  if (state.has_failure()) failure_ = state.failure();
  TESSERA_RETURN_IF_ERROR(saved.Find(state.saved(), &saved_));
  TESSERA_RETURN_IF_ERROR(saved.Find(state.begun_from(), &begun_from_));
  if (restore_generation_ != Generation() && begun_from_ == nullptr) {
    return absl::InvalidArgumentError("the job goes on from a checkpoint that is not named");
  }
  begun_from_sum_ = begun_from_ != nullptr ? SumOf(begun_from_->manifest) : 0;
  start_list_.Load(state);
  outbox_.clear();
  return absl::OkStatus();
}

void Membership::Reconnect(absl::Time now) {
  servers_.Reconnect(now);
  members_.ExtendLeases(now);
  if (owners_) owners_->Reconnect(now);
  if (started_) return;
  // Servers whose connection ends before the start are forgotten (ServerTable::Detach).
  for (int i = 0; i < servers_.count(); ++i) servers_.Forget(ShardId(i));
}

void Membership::ExtendLeases(absl::Time now) {
  servers_.ExtendLeases(now);
  members_.ExtendLeases(now);
  if (owners_) owners_->ExtendLeases(now);
}

}  // namespace tessera
