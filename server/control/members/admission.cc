#include "server/control/members/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "server/control/members/member_pace.h"

namespace tessera {

using Purpose = Proposals::Purpose;

void Admission::ProposeNext() {
  if (!on_.stage.started() || on_.stage.closed() || proposals_.open()) return;
  if (!on_.members.In(MemberState::kPlanned).empty()) return;
  if (on_.drain.wanted()) {
    if (on_.drain.released()) return;
    if (!on_.facts.synchronous) return on_.drain.ReleaseAtOnce();
    return Propose(Purpose::kDrain, MemberId());
  }
  if (on_.plans.AwaitsRecut()) return Propose(Purpose::kRecut, MemberId());
  if (MemberRecord* const joiner = NextJoiner(); joiner != nullptr) {
    on_.members.SetState(joiner, MemberState::kProposed);
    return Propose(Purpose::kJoiner, joiner->member);
  }
  std::optional<Parts::Shares> shares;
  if (!on_.stage.training_over()) shares = on_.plans.WantedShares();
  if (shares.has_value()) return Propose(Purpose::kRecut, MemberId(), std::move(shares));
  if (checkpoint_first_) Propose(Purpose::kCheckpoint, MemberId());
}

MemberRecord* Admission::NextJoiner() const {
  MemberRecord* first = nullptr;
  const std::vector<MemberRecord*> waiting = on_.members.In(MemberState::kWaiting);
  if (waiting.empty() || (on_.facts.replicated && on_.warm_up.IsOn())) return nullptr;
  for (MemberRecord* member : waiting) {
    // The worker of a replicated site comes after its server.
    if (on_.facts.replicated && !on_.servers.IsReady(ShardId(member->rank.value()))) continue;
    if (first == nullptr || member->member < first->member) first = member;
  }
  return first;
}

void Admission::Propose(Purpose purpose, MemberId joiner, std::optional<Parts::Shares> shares) {
  Exchange from = on_.facts.synchronous
                      ? Exchange(on_.start.Reached(on_.members, on_.servers).value() + 2)
                      : LeastExchange(on_.members).Next();
  // Former sites may have been given until then: whoever joins comes after them.
  if (on_.facts.subnets) from = std::max(from, on_.plans.sites_begin());
  if (purpose == Purpose::kCheckpoint) from = std::max(from, *checkpoint_first_);
  proposals_.Open(purpose, from, joiner, std::move(shares));
}

void Admission::OnReply(ShardId server, const v1::ProposalReply& reply) {
  if (proposals_.OnReply(server, reply.proposal(), Exchange(reply.first_exchange()))) Settle();
}

void Admission::OnServerLost(ShardId server) {
  if (proposals_.OnServerLost(server)) Settle();
}

void Admission::Settle() {
  const Exchange agreed = proposals_.agreed();
  if (proposals_.IsFor(Purpose::kJoiner)) {
    SettleJoiner(agreed);
  } else if (proposals_.IsFor(Purpose::kRecut)) {
    on_.plans.BeginSites(agreed, proposals_.shares());
    on_.plans.Send(proposals_.End());
    ProposeNext();
  } else if (proposals_.IsFor(Purpose::kDrain)) {
    on_.drain.Agree(agreed);
    ReleaseDrain();
  } else if (proposals_.IsFor(Purpose::kCheckpoint)) {
    agreed_checkpoint_ = agreed;
  }
}

void Admission::SettleJoiner(Exchange agreed) {
  MemberRecord* const member = on_.members.Find(proposals_.joiner());
  member->first_exchange = agreed;
  // Where members advance on their own, they may have gone on since the proposal.
  const auto local_steps = static_cast<uint64_t>(on_.facts.local_steps);
  member->first_step = on_.facts.aligned ? on_.start.steps().After(Exchange(agreed.value() - 1))
                                         : LeastStep(on_.members) / local_steps * local_steps;
  // Where epochs count, the end is not known before the last epoch's cut: the worker finds out.
  if (on_.facts.steps > 0) {
    member->first_step = std::min<uint64_t>(member->first_step, on_.facts.steps);
  }
  on_.members.SetState(member, MemberState::kPlanned);
  member->planned_in = on_.plans.generation().Next();
  on_.plans.BeginSites(agreed, std::nullopt);
  on_.plans.Send(proposals_.End());
}

void Admission::AdmitPlanned() {
  const Generation applied = on_.servers.AppliedByAll();
  for (MemberRecord* member : on_.members.In(MemberState::kPlanned)) {
    if (member->planned_in > applied) continue;
    on_.members.SetState(member, MemberState::kAdmitted);
    Log(LogLevel::kInfo, absl::StrCat("control: worker admitted worker=", member->rank.value(),
                                      " member=", member->member.value(),
                                      " first_exchange=", member->first_exchange.value()));
  }
  ProposeNext();
}

void Admission::OnEnded(MemberRecord* member, MemberState was, MemberState how) {
  if (was == MemberState::kProposed && proposals_.open()) {
    proposals_.Withdraw();
  } else if (IsCounted(was) && !(on_.stage.training_over() && how == MemberState::kLeft)) {
    on_.plans.EndSite(member);
    on_.plans.Send(0);
    AdmitPlanned();
  }
  ReleaseDrain();
  ProposeNext();
}

void Admission::ReleaseDrain() {
  // Once the job is over nothing is open any more.
  if (on_.drain.ReleaseIfAllHeard(on_.members) && proposals_.open()) proposals_.Withdraw();
}

void Admission::ProposeCheckpoint(Exchange first) {
  if (proposals_.IsFor(Purpose::kCheckpoint)) return;
  // It is called at every event while another proposal is open.
  changes_ += checkpoint_first_ != first ? 1 : 0;
  checkpoint_first_ = first;
  ProposeNext();
}

void Admission::OrderCheckpoint(const v1::CheckpointOrder& order, bool holds) {
  checkpoint_first_.reset();
  agreed_checkpoint_.reset();
  checkpoint_order_ = order;
  ++changes_;
  v1::PlanMessage message;
  *message.mutable_checkpoint() = order;
  if (!proposals_.IsFor(Purpose::kCheckpoint)) {
    on_.outbox.TellAll(message);
  } else if (holds) {
    proposals_.TurnIntoHold(Exchange(order.after_exchange()).Next(), std::move(message));
  } else {
    proposals_.Withdraw(std::move(message));
  }
  ProposeNext();
}

void Admission::EndHold() {
  if (!proposals_.IsFor(Purpose::kHold)) return;
  proposals_.Withdraw();
  ProposeNext();
}

void Admission::DropCheckpoint() {
  changes_ += checkpoint_first_ || agreed_checkpoint_ || checkpoint_order_ ? 1 : 0;
  checkpoint_first_.reset();
  agreed_checkpoint_.reset();
  checkpoint_order_.reset();
  if (!proposals_.IsFor(Purpose::kCheckpoint)) return;
  proposals_.Withdraw();
  ProposeNext();
}

void Admission::Fill(v1::PlanMessage* message) const {
  proposals_.Fill(message);
  if (checkpoint_order_) *message->mutable_checkpoint() = *checkpoint_order_;
}

void Admission::GoBack(v1::PlanMessage* message) {
  checkpoint_first_.reset();
  agreed_checkpoint_.reset();
  checkpoint_order_.reset();
  ++changes_;
  proposals_.Drop();
  proposals_.FillWithdrawn(message);
}

void Admission::Save(v1::MembershipState* state) const {
  proposals_.Save(state);
  if (checkpoint_first_) state->set_checkpoint_first(checkpoint_first_->value());
  if (agreed_checkpoint_) state->set_agreed_checkpoint(agreed_checkpoint_->value());
  if (checkpoint_order_) *state->mutable_checkpoint_order() = *checkpoint_order_;
}

absl::Status Admission::Load(const v1::MembershipState& state) {
  checkpoint_first_.reset();
  if (state.has_checkpoint_first()) checkpoint_first_ = Exchange(state.checkpoint_first());
  agreed_checkpoint_.reset();
  if (state.has_agreed_checkpoint()) agreed_checkpoint_ = Exchange(state.agreed_checkpoint());
  checkpoint_order_.reset();
  if (state.has_checkpoint_order()) checkpoint_order_ = state.checkpoint_order();
  return proposals_.Load(state, state.closed());
}

}  // namespace tessera
