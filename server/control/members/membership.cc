#include "server/control/members/membership.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "server/control/members/join_check.h"

namespace tessera {
namespace {

constexpr char kClosed[] =
    "the job has begun, and its method shares the model out among those who began it";

// Whoever was to join anew has done so by then, or is gone.
constexpr int kForgetLeases = 16;

std::string Seconds(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

Membership::Membership(const JobFacts& facts)
    : facts_(facts),
      servers_(facts),
      members_(facts),
      owners_(facts.standbys ? std::make_optional<ShardOwners>(facts) : std::nullopt),
      outbox_(servers_),
      directory_(servers_),
      start_(facts),
      start_list_(facts),
      plans_(facts, servers_, &members_, &outbox_),
      warm_up_(facts, servers_, stage_, drain_, &members_),
      admission_({facts, servers_, stage_, start_, warm_up_, members_, plans_, drain_, outbox_}),
      losses_(facts, start_, drain_, &servers_, owners(), &stage_),
      sites_(facts, servers_, members_, &outbox_),
      halves_(facts, stage_, members_, plans_),
      partial_pushes_(&members_),
      residuals_(facts),
      waits_({facts, stage_, servers_, members_, plans_, admission_.proposals(), start_,
              start_list_, warm_up_, owners()}) {
  if (facts.restored != nullptr) GoBack();
}

absl::Status Membership::CheckLeader(const v1::ServerHello& hello) const {
  if (!owners_ || hello.rank() >= static_cast<uint32_t>(servers_.count())) return absl::OkStatus();
  if (owners_->Leads(ShardId(hello.rank()), hello.lead_term(), hello.address())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", hello.rank(), ": another server leads it than the one at ",
                   hello.address(), " of term ", hello.lead_term()));
}

absl::Status Membership::Attach(const v1::ServerHello& hello, absl::Time now) {
  const ShardId server(hello.rank());
  TESSERA_RETURN_IF_ERROR(CheckLeader(hello));
  const bool is_known = servers_.IsHere(server) && servers_.at(server).known;
  const bool is_other = is_known && servers_.at(server).life != hello.life();
  if (facts_.replicated && stage_.started() && !stage_.closed() && is_other &&
      !servers_.at(server).attached) {
    LoseSite(server, "its server was restarted");
  }
  absl::Status attached = servers_.Attach(hello, stage_.started(), now);
  if (absl::IsFailedPrecondition(attached) && !facts_.replicated) {
    stage_.Fail(std::string(attached.message()));
  }
  TESSERA_RETURN_IF_ERROR(attached);
  if (servers_.at(server).left) {
    // It has not heard that it may end.
    v1::PlanMessage answer;
    answer.mutable_leave()->set_may_end(true);
    outbox_.Tell(server, std::move(answer));
    return absl::OkStatus();
  }
  if (owners_) directory_.OnChanged();
  Log(LogLevel::kInfo,
      absl::StrCat("control: server attached rank=", hello.rank(), " address=", hello.address()));
  std::optional<v1::PlanMessage> state = StateFor(server);
  if (state && !state->copy_from().empty() && (!is_known || is_other)) {
    directory_.OnChanged();
    ++changes_;
  }
  if (state) outbox_.Tell(server, *std::move(state));
  TryStart();
  return absl::OkStatus();
}

std::optional<v1::PlanMessage> Membership::StateFor(ShardId server) const {
  v1::PlanMessage state;
  if (stage_.closed()) {
    // With the last plan, whose acknowledgement may have been lost: it tells of partial pushes.
    if (stage_.started()) state = plans_.Text();
    state.set_drain(true);
    state.set_failure(stage_.closed_failure());
  } else if (stage_.started()) {
    state = plans_.Text();
    admission_.Fill(&state);
    if (const std::optional<ShardId> donor = sites_.DonorFor(server); donor.has_value()) {
      state.set_copy_from(servers_.at(*donor).address);
    }
  } else if (start_.generation() != Generation()) {
    *state.mutable_restore() = start_.Order();
  } else {
    return std::nullopt;
  }
  return state;
}

void Membership::Detach(ShardId server, uint64_t life, absl::Time now) {
  servers_.Detach(server, life, stage_.started(), now);
  if (!stage_.closed()) {
    Log(LogLevel::kWarning, absl::StrCat("control: server connection ended rank=", server.value()));
  }
}

void Membership::OnShardMessage(ShardId server, const v1::ShardMessage& message, absl::Time now) {
  const bool was_missed = servers_.OnHeard(server, now);
  losses_.OnHeard(server);
  if (message.has_restored()) OnRestored(server, message.restored(), now);
  if (message.has_counters() && HasItsParameters(server)) {
    servers_.OnCounters(server, message.counters(), now);
  }
  if (message.has_applied()) {
    servers_.OnApplied(server, Generation(message.applied().generation()), now);
    for (const auto& removed : message.applied().removed()) {
      partial_pushes_.OnRemoved(removed, server);
    }
    if (owners_ && servers_.at(server).applied >= generation()) owners_->OnLed(server, now);
    admission_.AdmitPlanned();
  }
  if (was_missed) TryStart();
  if (message.has_proposal_reply()) admission_.OnReply(server, message.proposal_reply());
  if (!facts_.replicated || !servers_.IsHere(server)) return;
  if (message.counters().copied() && !servers_.at(server).ready) {
    servers_.SetReady(server);
    Log(LogLevel::kInfo, absl::StrCat("control: server ready rank=", server.value()));
    admission_.ProposeNext();
  }
}

void Membership::OnRestored(ShardId server, const v1::RestoreReply& reply, absl::Time now) {
  // The reply may be to an order that was replaced, or that nobody gave.
  const Generation generation(reply.generation());
  if (generation != start_.generation() || start_.begun_from() == nullptr) return;
  if (!reply.error().empty()) {
    stage_.Fail(absl::StrCat("server ", server.value(), ": ", reply.error()));
    return;
  }
  const bool is_news = servers_.OnRestored(server, generation, now);
  if (is_news && owners_) owners_->OnRestored(server, now);
  TryStart();
}

bool Membership::CanDoWithout(ShardId server) const {
  if (owners_) return owners_->CanDoWithout(static_cast<uint32_t>(server.value()));
  return sites_.HasAnother(server);
}

void Membership::LetGo(ShardId server) {
  servers_.SetHasLeft(server);
  if (!stage_.started()) return servers_.Forget(server);
  if (facts_.replicated) return LoseSite(server, "its server was asked to end");
  losses_.OnLost(server, "it was asked to end");
}

void Membership::LoseSite(ShardId server, absl::string_view why) {
  servers_.SetGone(server);
  directory_.OnChanged();
  Log(LogLevel::kWarning,
      absl::StrCat("control: server removed rank=", server.value(), " why=\"", why, "\""));
  // Without a connection it hears it when it comes back; whoever comes in its place is not meant.
  if (servers_.at(server).attached) {
    v1::PlanMessage refusal;
    refusal.set_refuse(absl::StrCat("server ", server.value(), " was removed: ", why));
    outbox_.Tell(server, std::move(refusal));
  }
  if (const MemberRecord* beside = members_.LiveAt(Rank(server.value())); beside != nullptr) {
    Remove(beside->member, MemberState::kLost, why);
  }
  admission_.OnServerLost(server);
  sites_.OrderCopies();
  partial_pushes_.OnServerLost(server);
  admission_.AdmitPlanned();
}

void Membership::CloseServers(absl::string_view failure) {
  if (stage_.closed()) return;
  stage_.Close(std::string(failure));
  if (owners_) owners_->End(failure);
  admission_.Close();
  v1::PlanMessage message;
  message.set_drain(true);
  message.set_failure(std::string(failure));
  outbox_.TellAll(message);
}

absl::StatusOr<const MemberRecord*> Membership::Join(const v1::JoinRequest& request,
                                                     absl::Time now) {
  MemberId member(request.member());
  if (member == MemberId()) {
    // A repeated first request finds its member: its worker did not hear the answer, and others may wait for it.
    const MemberRecord* const known = members_.LiveOf(request.life());
    member = known != nullptr ? known->member : MemberId();
  }
  if (member == MemberId()) {
    TESSERA_ASSIGN_OR_RETURN(member, AddMember(request, now));
  }
  TESSERA_RETURN_IF_ERROR(members_.Touch(member, now));
  TryStart();
  admission_.ProposeNext();
  return members_.Find(member);
}

absl::StatusOr<MemberId> Membership::AddMember(const v1::JoinRequest& request, absl::Time now) {
  if (drain_.wanted()) return absl::FailedPreconditionError("join: the job is ending");
  if (facts_.closed_to_joiners && stage_.started()) {
    return absl::FailedPreconditionError(absl::StrCat("join: ", kClosed));
  }
  v1::JoinRequest wanted = request;
  if (!request.has_rank() && stage_.started()) {
    if (const std::optional<uint32_t> free = sites_.FreeRank()) wanted.set_rank(*free);
  }
  TESSERA_ASSIGN_OR_RETURN(const Rank rank, JoinCheck(facts_, members_).Check(wanted, now));
  const MemberId member = members_.Add(wanted, rank, now);
  Log(LogLevel::kInfo, absl::StrCat("control: worker joined worker=", rank.value(),
                                    " member=", member.value(), " from=", request.description()));
  return member;
}

v1::JoinRequest Membership::AskedAnew(const v1::JoinRequest& request) const {
  v1::JoinRequest asked = request;
  const MemberRecord* const record = members_.Find(MemberId(request.member()));
  if (record == nullptr || !MayRejoin(record->state)) return asked;
  asked.clear_member();
  if (members_.LiveAt(record->rank) == nullptr) {
    asked.set_rank(static_cast<uint32_t>(record->rank.value()));
  }
  return asked;
}

absl::Status Membership::Renew(const v1::RenewRequest& request, absl::Time now) {
  const MemberId member(request.member());
  TESSERA_RETURN_IF_ERROR(members_.Touch(member, now));
  MemberRecord* const record = members_.Find(member);
  record->OnProgress(request.progress(), now);
  // What it cannot have been told yet is not believed.
  const uint64_t drain_seen = std::min(request.drain_seen(), drain_.exchange().value());
  record->drain_seen = std::max(record->drain_seen, drain_seen);
  admission_.ReleaseDrain();
  // The warm-up may be over.
  if (facts_.warmup_steps > 0) admission_.ProposeNext();
  return absl::OkStatus();
}

void Membership::Remove(MemberId member, MemberState how, absl::string_view why) {
  MemberRecord* const record = members_.Find(member);
  const MemberState was = record->state;
  for (int i = 0; i < servers_.count(); ++i) {
    // A replica that has yet to copy another one knows nothing of its own.
    const bool counts = !facts_.replicated || servers_.IsReady(ShardId(i));
    if (counts) record->counted_by.insert(ShardId(i));
  }
  members_.End(member, how, why);
  const bool has_left = how == MemberState::kLeft;
  Log(has_left ? LogLevel::kInfo : LogLevel::kWarning,
      absl::StrCat("control: worker ", has_left ? "left" : "removed",
                   " worker=", record->rank.value(), " member=", member.value(), " why=\"", why,
                   "\" members=", members_.Counted().size()));
  if (!has_left) residuals_.OnLost(was);
  admission_.OnEnded(record, was, how);
}

bool Membership::IsNeeded(const MemberRecord& member, absl::Time now) const {
  if (MayRejoin(member.state)) {
    return now - member.last_heard <= kForgetLeases * facts_.lease_timeout;
  }
  // Servers have yet to say which pushes of it they had.
  const bool is_open =
      member.planned_in != Generation() && member.last_counted.size() < member.counted_by.size();
  return plans_.IsDepartedSite(member) || is_open || plans_.parts().PartOf(member.member) > 0 ||
         halves_.IsFormerWorker(member);
}

void Membership::ForgetEnded(absl::Time now) {
  // Nobody comes any more, and the report has all who are there at the end.
  if (stage_.training_over() || drain_.wanted() || stage_.closed()) return;
  for (const MemberId id : members_.EndedLongAgo()) {
    const MemberRecord& member = *members_.Find(id);
    if (IsNeeded(member, now)) continue;
    partial_pushes_.Forget(member);
    members_.Forget(id, start_.ExamplesOf(member));
  }
}

uint64_t Membership::MarkTold(MemberId member, uint64_t number) {
  MemberRecord* const record = members_.Find(member);
  if (!record->told_checkpoint) {
    record->told_checkpoint = number;
    ++changes_;
  }
  return *record->told_checkpoint;
}

void Membership::Tick(absl::Time now) {
  if (owners_) owners_->Tick(now);
  EndServerLeases(now);
  // Members of a job that goes back are not waited for without end.
  if (!stage_.started() && servers_.AllRestored(start_.generation()) && start_list_.IsTimeUp(now)) {
    TryStart();
  }
  EndMemberLeases(now);
  // What members say of their speed comes with renewals; this is often enough.
  if (facts_.parts_by_speed) admission_.ProposeNext();
}

void Membership::EndServerLeases(absl::Time now) {
  for (ShardId server : servers_.Expired(now)) {
    if (!stage_.started()) {
      servers_.Miss(server);
      continue;
    }
    // One that falls silent while the job closes may come back with its last counters: the end has a limit of its own.
    if (stage_.closed()) continue;
    if (!facts_.replicated) {
      losses_.OnSilent(server, now);
      continue;
    }
    const std::string silence = Seconds(now - servers_.at(server).last_heard);
    LoseSite(server, absl::StrCat("its server was last heard ", silence, " ago, lease ",
                                  Seconds(facts_.lease_timeout)));
  }
}

void Membership::EndMemberLeases(absl::Time now) {
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
}

void Membership::TryStart() {
  if (stage_.started() || stage_.closed() || !servers_.AllKnown()) return;
  if (!servers_.AllRestored(start_.generation())) return;
  if (owners_ && !owners_->MayStart()) return;
  if (!start_list_.IsComplete(members_)) return;
  stage_.Start();
  residuals_.OnStart(start_, start_list_, members_);
  if (start_list_.goes_back()) start_list_.MarkMissed(&members_);
  if (owners_) owners_->OnStarted();
  for (MemberRecord* member : members_.In(MemberState::kWaiting)) {
    // Others join late.
    const bool is_late = member->rank.value() >= (facts_.warmup_steps > 0 ? 1 : facts_.workers);
    if (is_late && !start_list_.goes_back()) continue;
    members_.SetState(member, MemberState::kPlanned);
    start_.BeginMember(member);
    member->planned_in = generation().Next();
  }
  plans_.SendFirst(start_.first_exchange());
  Log(LogLevel::kInfo, absl::StrCat("control: all here servers=", facts_.servers,
                                    " workers=", members_.Counted().size()));
  if (!facts_.closed_to_joiners) return;
  for (MemberRecord* member : members_.In(MemberState::kWaiting)) {
    Remove(member->member, MemberState::kLeft, kClosed);
  }
}

void Membership::Drain() {
  if (drain_.wanted()) return;
  drain_.Want();
  for (MemberRecord* waiting : members_.In(MemberState::kWaiting)) {
    Remove(waiting->member, MemberState::kLeft, "the job is ending");
  }
  if (const MemberId joiner = admission_.proposals().joiner(); joiner != MemberId()) {
    Remove(joiner, MemberState::kLeft, "the job is ending");
  }
  losses_.EndPause();
  admission_.EndHold();
  admission_.ProposeNext();
}

void Membership::OnTrainingOver() {
  stage_.EndTraining();
  losses_.EndPause();
}

void Membership::GoBack() {
  const Manifest& manifest = start_.saved()->manifest;
  std::set<Rank> were_members;
  for (const auto& [id, record] : members_.all()) {
    if (!IsLive(record.state)) continue;
    were_members.insert(record.rank);
    members_.End(id, MemberState::kRejoins,
                 absl::StrCat("the job went back to step ", manifest.step));
  }
  start_list_.GoBack(stage_.started() ? std::make_optional(std::move(were_members)) : std::nullopt);
  partial_pushes_.KeepCount();
  members_.UndoSince(manifest.step);
  stage_.GoBack();
  if (owners_) owners_->GoBack();
  servers_.GoBack();
  start_.GoBack(plans_.GoBack(Generation(manifest.generation)));
  v1::PlanMessage message;
  *message.mutable_restore() = start_.Order();
  admission_.GoBack(&message);
  outbox_.TellAll(message);
}

uint64_t Membership::changes() const {
  return changes_ + members_.changes() + servers_.changes() + stage_.changes() + drain_.changes() +
         start_.changes() + plans_.changes() + admission_.changes() + partial_pushes_.changes() +
         residuals_.changes() + (owners_ ? owners_->changes() : 0);
}

void Membership::Save(SavedStates* saved, v1::MembershipState* state) const {
  servers_.Save(state);
  members_.Save(state);
  if (owners_) *state->mutable_owners() = owners_->Save();
  directory_.Save(state);
  stage_.Save(state);
  drain_.Save(state);
  start_.Save(saved, state);
  start_list_.Save(state);
  plans_.Save(state);
  admission_.Save(state);
  partial_pushes_.Save(state);
  residuals_.Save(state);
}

absl::Status Membership::Load(const v1::MembershipState& state, const SavedStates& saved) {
  TESSERA_RETURN_IF_ERROR(servers_.Load(state));
  TESSERA_RETURN_IF_ERROR(members_.Load(state));
  if (state.has_owners() != owners_.has_value()) {
    return absl::InvalidArgumentError("it has standbys where the job does not, or the reverse");
  }
  if (owners_) TESSERA_RETURN_IF_ERROR(owners_->Load(state.owners()));
  directory_.Load(state);
  stage_.Load(state);
  drain_.Load(state);
  TESSERA_RETURN_IF_ERROR(start_.Load(state, saved));
  start_list_.Load(state);
  plans_.Load(state);
  TESSERA_RETURN_IF_ERROR(admission_.Load(state));
  partial_pushes_.Load(state);
  residuals_.Load(state);
  outbox_.Clear();
  return absl::OkStatus();
}

void Membership::Reconnect(absl::Time now) {
  servers_.Reconnect(now);
  members_.ExtendLeases(now);
  if (owners_) owners_->Reconnect(now);
  if (stage_.started()) return;
  // Servers whose connection ends before the start are forgotten (ServerTable::Detach).
  for (int i = 0; i < servers_.count(); ++i) servers_.Forget(ShardId(i));
}

void Membership::ExtendLeases(absl::Time now) {
  servers_.ExtendLeases(now);
  members_.ExtendLeases(now);
  if (owners_) owners_->ExtendLeases(now);
}

}  // namespace tessera
