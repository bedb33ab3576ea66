#include "server/control/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"

namespace tessera {
namespace {

constexpr char kClosed[] =
    "the job has begun, and its method shares the model out among those who began it";

std::string Seconds(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

Membership::Membership(const JobFacts& facts)
    : facts_(facts), servers_(facts), members_(facts), parts_(facts), start_list_(facts) {
  if (facts.standbys) owners_.emplace(facts);
  if (facts.restored == nullptr) return;
  saved_ = facts.restored;
  GoBack();
}

absl::Status Membership::Attach(const v1::ServerHello& hello, absl::Time now) {
  const ShardId server(hello.rank());
  TESSERA_RETURN_IF_ERROR(CheckLeader(hello));
  const bool is_known = servers_.IsHere(server) && servers_.at(server).known;
  const bool is_other = is_known && servers_.at(server).life != hello.life();
  if (facts_.replicated && started_ && !closed_ && is_other && !servers_.at(server).attached) {
    LoseServer(server, "its server was restarted");
  }
  absl::Status attached = servers_.Attach(hello, started_, now);
  if (absl::IsFailedPrecondition(attached) && !failure_ && !facts_.replicated) {
    failure_ = std::string(attached.message());
    ++changes_;
  }
  TESSERA_RETURN_IF_ERROR(attached);
  if (servers_.at(server).left) {
    // It has not heard that it may end.
    v1::PlanMessage answer;
    answer.mutable_leave()->set_may_end(true);
    outbox_.push_back({server, answer});
    return absl::OkStatus();
  }
  if (owners_) ++server_list_generation_;
  Log(LogLevel::kInfo,
      absl::StrCat("control: server attached rank=", hello.rank(), " address=", hello.address()));
  if (closed_) {
    // With the last plan, whose acknowledgement may have been lost: it tells of partial pushes.
    v1::PlanMessage drain;
    if (started_) drain = PlanText();
    drain.set_drain(true);
    drain.set_failure(closed_failure_);
    outbox_.push_back({ShardId(hello.rank()), drain});
  } else if (started_) {
    v1::PlanMessage state = PlanText();
    if (open_) *state.mutable_propose() = ProposalText();
    // It may have missed the outcome of earlier ones.
    state.set_withdraw(open_ ? open_->agreement.number() - 1 : last_proposal_);
    if (const std::optional<ShardId> donor = DonorFor(server); donor.has_value()) {
      state.set_copy_from(servers_.at(*donor).address);
      if (!is_known || is_other) {
        ++server_list_generation_;
        ++changes_;
      }
    }
    if (checkpoint_order_) *state.mutable_checkpoint() = *checkpoint_order_;
    outbox_.push_back({ShardId(hello.rank()), state});
  } else if (restore_generation_ != Generation()) {
    v1::PlanMessage restore;
    *restore.mutable_restore() = RestoreText();
    outbox_.push_back({ShardId(hello.rank()), restore});
  }
  TryStart();
  return absl::OkStatus();
}

void Membership::Detach(ShardId server, uint64_t life, absl::Time now) {
  servers_.Detach(server, life, started_, now);
  if (!closed_) {
    Log(LogLevel::kWarning, absl::StrCat("control: server connection ended rank=", server.value()));
  }
}

void Membership::OnShardMessage(ShardId server, const v1::ShardMessage& message, absl::Time now) {
  const bool was_missed = servers_.OnHeard(server, now);
  if (paused_ && servers_.IsLost(server)) OnServerBack(server);
  if (message.has_restored()) OnRestored(server, message.restored(), now);
  if (message.has_counters() && HasItsParameters(server)) {
    servers_.OnCounters(server, message.counters(), now);
  }
  if (message.has_applied()) {
    servers_.OnApplied(server, Generation(message.applied().generation()), now);
    for (const auto& removed : message.applied().removed()) OnRemoved(removed, server);
    if (owners_ && servers_.at(server).applied >= generation_) owners_->OnLed(server, now);
    AdmitPlanned();
  }
  if (was_missed) TryStart();
  if (message.has_proposal_reply() && open_) {
    const v1::ProposalReply& reply = message.proposal_reply();
    OnAgreement(
        open_->agreement.OnReply(server, reply.proposal(), Exchange(reply.first_exchange())));
  }
  if (!facts_.replicated || !servers_.IsHere(server)) return;
  if (message.counters().copied() && !servers_.at(server).ready) {
    servers_.SetReady(server);
    Log(LogLevel::kInfo, absl::StrCat("control: server ready rank=", server.value()));
    ProposeNext();
  }
}

void Membership::OnAgreement(Agreement::Outcome outcome) {
  switch (outcome) {
    case Agreement::Outcome::kWaiting:
      break;
    case Agreement::Outcome::kRaised: {
      const uint64_t replaced = open_->agreement.number();
      open_->agreement = open_->agreement.Raised(++last_proposal_);
      SendProposal(replaced);
      break;
    }
    case Agreement::Outcome::kAgreed:
      Settle();
      break;
  }
}

void Membership::OnRemoved(const v1::PlanApplied::Removed& removed, ShardId server) {
  MemberRecord* member = members_.Find(MemberId(removed.member()));
  if (member == nullptr || member->counted_by.count(server) == 0) return;
  const Exchange exchange(removed.last_exchange());
  const auto [found, is_new] = member->last_counted.emplace(server, exchange);
  if (!is_new && found->second == exchange) return;
  const bool was_partial = member->has_partial_push();
  found->second = exchange;
  ++changes_;
  if (!was_partial) LogPartialPush(*member);
}

void Membership::LogPartialPush(const MemberRecord& member) const {
  if (!member.has_partial_push()) return;
  Log(LogLevel::kWarning, absl::StrCat("control: partial push worker=", member.rank.value(),
                                       " member=", member.member.value()));
}

uint64_t Membership::partial_pushes() const {
  uint64_t partial = partial_pushes_;
  for (const auto& [id, member] : members_.all()) partial += member.has_partial_push();
  return partial;
}

absl::StatusOr<const MemberRecord*> Membership::Join(const v1::JoinRequest& request,
                                                     absl::Time now) {
  MemberId member(request.member());
  if (member == MemberId()) {
    // Whoever is known did not hear the answer, and others may wait for it.
    const bool is_known = members_.LiveOf(request.life()) != nullptr;
    if (drain_wanted_ && !is_known) {
      return absl::FailedPreconditionError("join: the job is ending");
    }
    if (facts_.closed_to_joiners && started_ && !is_known) {
      return absl::FailedPreconditionError(absl::StrCat("join: ", kClosed));
    }
    const MemberId known = members_.last();
    v1::JoinRequest wanted = request;
    const std::optional<uint32_t> beside = RankBeside();
    if (!request.has_rank() && beside.has_value()) wanted.set_rank(*beside);
    TESSERA_ASSIGN_OR_RETURN(member, members_.Add(wanted, now));
    if (members_.last() > known) {
      Log(LogLevel::kInfo,
          absl::StrCat("control: worker joined worker=", members_.Find(member)->rank.value(),
                       " member=", member.value(), " from=", request.description()));
    }
  }
  TESSERA_RETURN_IF_ERROR(members_.Touch(member, now));
  TryStart();
  ProposeNext();
  return members_.Find(member);
}

absl::Status Membership::Renew(const v1::RenewRequest& request, absl::Time now) {
  const MemberId member(request.member());
  TESSERA_RETURN_IF_ERROR(members_.Touch(member, now));
  members_.OnProgress(member, request.progress(), now);
  MemberRecord* record = members_.Find(member);
  record->drain_seen = std::max(record->drain_seen, request.drain_seen());
  ReleaseDrain();
  // The warm-up may be over.
  if (facts_.warmup_steps > 0) ProposeNext();
  return absl::OkStatus();
}

void Membership::Remove(MemberId member, MemberState how, absl::string_view why) {
  const MemberState was = members_.Find(member)->state;
  for (int i = 0; i < servers_.count(); ++i) {
    // A replica that has yet to copy another one knows nothing of its own.
    const bool counts = !facts_.replicated || servers_.IsReady(ShardId(i));
    if (counts) members_.Find(member)->counted_by.insert(ShardId(i));
  }
  members_.End(member, how, why);
  if (IsCounted(was)) last_left_ = how == MemberState::kLeft;
  const MemberRecord& record = *members_.Find(member);
  Log(how == MemberState::kLeft ? LogLevel::kInfo : LogLevel::kWarning,
      absl::StrCat("control: worker ", how == MemberState::kLeft ? "left" : "removed",
                   " worker=", record.rank.value(), " member=", member.value(), " why=\"", why,
                   "\" members=", members_.Counted().size()));
  if (facts_.holds_back && IsCounted(was) && how != MemberState::kLeft) ++residuals_lost_;
  if (was == MemberState::kProposed && open_) {
    WithdrawOpen();
  } else if (IsCounted(was) && !(training_over_ && how == MemberState::kLeft)) {
    if (facts_.subnets) members_.Find(member)->site_until = Exchange(0);
    SendPlan(0);
    AdmitPlanned();
  }
  ReleaseDrain();
  ProposeNext();
}

void Membership::Tick(absl::Time now) {
  if (owners_) owners_->Tick(now);
  for (ShardId server : servers_.Expired(now)) {
    if (!started_) {
      servers_.Miss(server);
      continue;
    }
    // One that falls silent while the job closes may come back with its last counters: the end has
    // a limit of its own.
    if (closed_) continue;
    if (facts_.replicated) {
      const std::string silence = Seconds(now - servers_.at(server).last_heard);
      LoseServer(server, absl::StrCat("its server was last heard ", silence, " ago, lease ",
                                      Seconds(facts_.lease_timeout)));
      continue;
    }
    OnServerSilent(server, now);
  }
  LimitRejoining(now);
  for (MemberId member : members_.Expired(now)) {
    const absl::Duration silence = now - members_.Find(member)->last_heard;
    Log(LogLevel::kWarning,
        absl::StrCat("control: lease expired worker=", members_.Find(member)->rank.value(),
                     " last_heard_ms=", absl::ToInt64Milliseconds(silence),
                     " lease_ms=", absl::ToInt64Milliseconds(facts_.lease_timeout)));
    Remove(member, MemberState::kLost,
           absl::StrCat("last heard ", Seconds(silence), " before its lease of ",
                        Seconds(facts_.lease_timeout), " was ended"));
  }
  for (MemberId member : members_.Stalled(now)) {
    const MemberRecord& record = *members_.Find(member);
    const absl::Duration standing = record.stall.Standing(now);
    Log(LogLevel::kWarning,
        absl::StrCat(
            "control: training stands worker=", record.rank.value(),
            " step=", record.progress.step(), " standing_ms=", absl::ToInt64Milliseconds(standing),
            " limit_ms=", absl::ToInt64Milliseconds(record.stall.Limit(facts_.lease_timeout))));
    Remove(member, MemberState::kLost,
           absl::StrCat("it kept its lease, but its training stood still for ", Seconds(standing),
                        " after step ", record.progress.step()));
  }
  // What members say of their speed comes with renewals; this is often enough.
  if (facts_.parts_by_speed) ProposeNext();
}

void Membership::TryStart() {
  if (started_ || closed_ || !servers_.AllKnown()) return;
  if (!servers_.AllRestored(restore_generation_)) return;
  if (owners_ && !owners_->MayStart()) return;
  if (!start_list_.IsComplete(members_)) return;
  started_ = true;
  CountResiduals();
  CountMissed();
  if (owners_) owners_->OnStarted();
  for (MemberRecord* member : members_.In(MemberState::kWaiting)) {
    // Others join late.
    const bool is_late = member->rank.value() >= (facts_.warmup_steps > 0 ? 1 : facts_.workers);
    if (is_late && !start_list_.goes_back()) continue;
    members_.SetState(member, MemberState::kPlanned);
    BeginMember(member);
    member->planned_in = generation_.Next();
  }
  const Exchange first(begun_from_ != nullptr ? begun_from_->manifest.exchange + 1 : 1);
  parts_.Begin(first, members_, std::nullopt, Exchange(0));
  first_plan_ = generation_.Next();
  SendPlan(0);
  Log(LogLevel::kInfo, absl::StrCat("control: all here servers=", facts_.servers,
                                    " workers=", members_.Counted().size()));
  if (!facts_.closed_to_joiners) return;
  for (MemberRecord* member : members_.In(MemberState::kWaiting)) {
    Remove(member->member, MemberState::kLeft, kClosed);
  }
}

v1::PlanMessage Membership::PlanText() const {
  v1::PlanMessage message;
  v1::Plan& plan = *message.mutable_plan();
  plan.set_generation(generation_.value());
  for (const MemberRecord* member : members_.Counted()) {
    v1::Member& entry = *plan.add_members();
    entry.set_member(member->member.value());
    entry.set_rank(member->rank.value());
    entry.set_first_exchange(member->first_exchange.value());
  }
  const Exchange done = servers_.LeastCommitted();
  for (const auto& [id, member] : members_.all()) {
    if (!member.site_until) continue;
    if (*member.site_until != Exchange(0) && *member.site_until <= done) continue;
    v1::FormerSite& site = *plan.add_former_sites();
    site.set_member(id.value());
    site.set_rank(member.rank.value());
    site.set_first_exchange(member.first_exchange.value());
    site.set_until_exchange(member.site_until->value());
  }
  parts_.Fill(&plan);
  return message;
}

bool Membership::AwaitsRecut() const {
  if (!facts_.subnets) return false;
  for (const auto& [id, member] : members_.all()) {
    if (member.site_until == Exchange(0)) return true;
  }
  return false;
}

void Membership::BeginSites(Exchange agreed, const std::optional<Parts::Shares>& shares) {
  for (const auto& [id, member] : members_.all()) {
    if (member.site_until == Exchange(0)) members_.Find(id)->site_until = agreed;
  }
  parts_.Begin(agreed, members_, shares, servers_.LeastCommitted());
  sites_begin_ = agreed;
}

v1::Proposal Membership::ProposalText() const {
  v1::Proposal proposal;
  proposal.set_proposal(open_->agreement.number());
  proposal.mutable_member()->set_first_exchange(open_->agreement.proposed().value());
  if (open_->joiner != MemberId()) {
    proposal.mutable_member()->set_member(open_->joiner.value());
    proposal.mutable_member()->set_rank(members_.Find(open_->joiner)->rank.value());
  }
  return proposal;
}

void Membership::SendPlan(uint64_t settled) {
  generation_ = generation_.Next();
  ++changes_;
  v1::PlanMessage message = PlanText();
  if (settled != 0) message.set_withdraw(settled);
  Log(LogLevel::kInfo, absl::StrCat("control: plan generation=", generation_.value(),
                                    " members=", message.plan().members_size()));
  SendToAll(message);
}

void Membership::SendProposal(uint64_t replaced) {
  ++changes_;
  v1::PlanMessage message;
  *message.mutable_propose() = ProposalText();
  if (replaced != 0) message.set_withdraw(replaced);
  SendToAll(message);
}

void Membership::SendToAll(const v1::PlanMessage& message) {
  for (int i = 0; i < servers_.count(); ++i) {
    if (servers_.IsHere(ShardId(i))) outbox_.push_back({ShardId(i), message});
  }
}

void Membership::WithdrawOpen(v1::PlanMessage message) {
  message.set_withdraw(open_->agreement.number());
  open_.reset();
  ++changes_;
  SendToAll(message);
}

void Membership::Settle() {
  ++changes_;
  const Exchange agreed = open_->agreement.proposed();
  if (open_->recut) {
    BeginSites(agreed, open_->shares);
    const uint64_t settled = open_->agreement.number();
    open_.reset();
    SendPlan(settled);
    ProposeNext();
    return;
  }
  if (open_->hold) return;
  if (open_->checkpoint) {
    agreed_checkpoint_ = agreed;  // The promise holds until the order is out.
    return;
  }
  if (open_->joiner == MemberId()) {
    drain_exchange_ = agreed;
    drain_agreed_ = true;
    ReleaseDrain();
    return;
  }
  MemberRecord* member = members_.Find(open_->joiner);
  member->first_exchange = agreed;
  // Where members advance on their own, they may have gone on since the proposal.
  member->first_step = facts_.aligned
                           ? exchange_steps().After(Exchange(agreed.value() - 1))
                           : members_.LeastStep() / facts_.local_steps * facts_.local_steps;
  // Where epochs count, the end is not known before the last epoch's cut: the worker finds out.
  if (facts_.steps > 0) {
    member->first_step = std::min<uint64_t>(member->first_step, facts_.steps);
  }
  members_.SetState(member, MemberState::kPlanned);
  member->planned_in = generation_.Next();
  BeginSites(agreed, std::nullopt);
  const uint64_t settled = open_->agreement.number();
  open_.reset();
  SendPlan(settled);
}

void Membership::AdmitPlanned() {
  const Generation applied = servers_.AppliedByAll();
  for (MemberRecord* member : members_.In(MemberState::kPlanned)) {
    if (member->planned_in > applied) continue;
    members_.SetState(member, MemberState::kAdmitted);
    Log(LogLevel::kInfo, absl::StrCat("control: worker admitted worker=", member->rank.value(),
                                      " member=", member->member.value(),
                                      " first_exchange=", member->first_exchange.value()));
  }
  ProposeNext();
}

void Membership::ProposeNext() {
  if (!started_ || closed_ || open_ || !members_.In(MemberState::kPlanned).empty()) return;
  MemberId joiner;
  bool recut = false;
  std::optional<Parts::Shares> shares;
  if (drain_wanted_) {
    if (drain_released_) return;
    if (!facts_.synchronous) {
      // Nobody waits for anybody: each stops where it is.
      drain_exchange_ = Exchange(1);
      drain_released_ = true;
      ++changes_;
      return;
    }
  } else if (AwaitsRecut()) {
    recut = true;
  } else {
    std::vector<MemberRecord*> waiting = members_.In(MemberState::kWaiting);
    if (facts_.replicated) {
      const bool is_warming_up = IsWarmingUp();
      waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                                   [&](const MemberRecord* member) {
                                     return is_warming_up ||
                                            !servers_.IsReady(ShardId(member->rank.value()));
                                   }),
                    waiting.end());
    }
    if (!waiting.empty()) {
      // In the order of arrival.
      MemberRecord* first = *std::min_element(
          waiting.begin(), waiting.end(), [](auto* a, auto* b) { return a->member < b->member; });
      members_.SetState(first, MemberState::kProposed);
      joiner = first->member;
    } else {
      if (!training_over_) shares = parts_.Wanted(members_);
      recut = shares.has_value();
      if (!recut && !checkpoint_first_) return;
    }
  }
  const bool checkpoint = !drain_wanted_ && !recut && joiner == MemberId();
  Exchange from = facts_.synchronous ? Exchange(ReachedExchange().value() + 2)
                                     : members_.LeastExchange().Next();
  // Former sites may have been given until then: whoever joins comes after them.
  if (facts_.subnets) from = std::max(from, sites_begin_);
  if (checkpoint) from = std::max(from, *checkpoint_first_);
  open_ = OpenProposal{joiner, recut, std::move(shares),
                       Agreement(servers_.count(), ++last_proposal_, from), checkpoint};
  for (int i = 0; i < servers_.count(); ++i) {
    if (!servers_.IsHere(ShardId(i))) open_->agreement.Drop(ShardId(i));
  }
  SendProposal(0);
}

std::vector<Outgoing> Membership::TakeOutbox() { return std::exchange(outbox_, {}); }

}  // namespace tessera
