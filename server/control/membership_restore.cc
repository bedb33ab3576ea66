// Checkpoints, and going back to one: what servers and members are told.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "server/control/membership.h"

namespace tessera {
namespace {

// In lockstep, by how many exchanges one member may say that it is ahead of what servers and the others last said:
// they make some between two reports.
constexpr uint64_t kAheadMax = 64;

// Where members advanced on their own: who was furthest behind. nullptr: the manifest names nobody.
const CheckpointMember* LastOf(const Manifest& manifest) {
  const auto last = std::min_element(
      manifest.members.begin(), manifest.members.end(),
      [](const CheckpointMember& a, const CheckpointMember& b) { return a.step < b.step; });
  return last != manifest.members.end() ? &*last : nullptr;
}

}  // namespace

void Membership::ProposeCheckpoint(Exchange first) {
  if (open_ && open_->checkpoint) return;
  // At every event while another proposal is open.
  changes_ += checkpoint_first_ != first ? 1 : 0;
  checkpoint_first_ = first;
  ProposeNext();
}

void Membership::OrderCheckpoint(const v1::CheckpointOrder& order, bool holds) {
  checkpoint_first_.reset();
  agreed_checkpoint_.reset();
  checkpoint_order_ = order;
  ++changes_;
  v1::PlanMessage message;
  *message.mutable_checkpoint() = order;
  if (open_ && open_->checkpoint && holds) {
    // All promise it at once: nothing of the exchange before it is folded yet.
    const uint64_t settled = open_->agreement.number();
    open_ = OpenProposal{
        MemberId(),
        false,
        std::nullopt,
        Agreement(servers_.count(), ++last_proposal_, Exchange(order.after_exchange()).Next()),
        /*checkpoint=*/false,
        /*hold=*/true};
    *message.mutable_propose() = ProposalText();
    message.set_withdraw(settled);
    SendToAll(message);
  } else if (open_ && open_->checkpoint) {
    WithdrawOpen(std::move(message));
  } else {
    SendToAll(message);
  }
  ProposeNext();
}

void Membership::EndHold() {
  if (!open_ || !open_->hold) return;
  WithdrawOpen();
  ProposeNext();
}

void Membership::LetGo(ShardId server) {
  servers_.SetHasLeft(server);
  if (!started_) return servers_.Forget(server);
  if (facts_.replicated) return LoseServer(server, "its server was asked to end");
  OnServerLost(server, "it was asked to end");
}

void Membership::DropCheckpoint() {
  changes_ += checkpoint_first_ || agreed_checkpoint_ || checkpoint_order_ ? 1 : 0;
  checkpoint_first_.reset();
  agreed_checkpoint_.reset();
  checkpoint_order_.reset();
  if (!open_ || !open_->checkpoint) return;
  WithdrawOpen();
  ProposeNext();
}

uint64_t Membership::MarkTold(MemberId member, uint64_t number) {
  MemberRecord* const record = members_.Find(member);
  if (!record->told_checkpoint) {
    record->told_checkpoint = number;
    ++changes_;
  }
  return *record->told_checkpoint;
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

void Membership::OnServerLost(ShardId server, absl::string_view why) {
  const bool is_known = paused_ && servers_.IsLost(server);
  // Said at every tick until it is back. News only where whoever was to speak for it is lost, too.
  if (is_known && !servers_.at(server).handed_over) return;
  ++changes_;
  servers_.SetGone(server);
  if (is_known) return;
  const std::string told = absl::StrCat("server ", server.value(), " is gone: ", why);
  if (CanGoBack()) {
    paused_ = true;
    std::string others;
    if (owners_) {
      const absl::Duration patience = ShardOwners::kPatienceLeases * facts_.lease_timeout;
      others = absl::StrCat(" within ", absl::FormatDuration(patience),
                            ", or another server leads its shard");
    }
    Log(LogLevel::kWarning,
        absl::StrCat("control: paused why=\"", told, "; start it again", others,
                     ", and the job goes on from step ", saved_->manifest.step, "\""));
    return;
  }
  if (!failure_) failure_ = absl::StrCat(told, "; its parameters are lost, start the job again");
}

void Membership::OnServerBack(ShardId server) {
  servers_.SetBack(server);
  Log(LogLevel::kInfo, absl::StrCat("control: server back rank=", server.value()));
  for (int i = 0; i < servers_.count(); ++i) {
    if (servers_.IsLost(ShardId(i))) return;
  }
  paused_ = false;
  ++changes_;
}

// As WorkerSaver deals it, or leaves it to its rank. Of those that were lost before it was counted then. Of halves of
// the layers, which a manifest does not tell, as if all had the same: where restore has dealt them within each half
// another one than its taker may be counted.
void Membership::CountResiduals() {
  if (!facts_.holds_back || begun_from_ == nullptr) return;
  const std::vector<CheckpointMember>& saved = begun_from_->manifest.members;
  const auto workers = static_cast<uint64_t>(facts_.workers);
  const bool is_dealt = begun_from_->from_restore && !begun_from_->manifest.HasRanks(workers);
  for (const CheckpointMember& member : saved) {
    if (!start_list_.WasMember(Rank(member.rank))) continue;
    const uint64_t taker = is_dealt ? member.rank % workers : member.rank;
    if (members_.LiveAt(Rank(taker)) != nullptr) continue;
    ++residuals_lost_;
    ++changes_;
  }
}

void Membership::CountMissed() {
  if (!start_list_.goes_back()) return;
  std::map<Rank, MemberId> missed;
  for (const auto& [id, record] : members_.all()) {
    // The job may have gone back more than once since it came: the last one that took part is who is lost.
    const bool is_missed = record.state == MemberState::kRejoins && record.had_begun() &&
                           start_list_.WasMember(record.rank) &&
                           members_.LiveAt(record.rank) == nullptr;
    if (is_missed) missed[record.rank] = std::max(missed[record.rank], id);
  }
  for (const auto& [rank, id] : missed) {
    members_.SetState(members_.Find(id), MemberState::kMissed);
    Log(LogLevel::kWarning,
        absl::StrCat("control: worker missed worker=", rank.value(), " member=", id.value(),
                     " why=\"not back in time since ", members_.Find(id)->ended, "\""));
  }
}

void Membership::LimitRejoining(absl::Time now) {
  if (started_ || !servers_.AllRestored(restore_generation_)) return;
  if (start_list_.IsTimeUp(now)) TryStart();
}

void Membership::GoBack() {
  ++changes_;
  std::set<Rank> were_members;
  for (const auto& [id, record] : members_.all()) {
    if (!IsLive(record.state)) continue;
    were_members.insert(record.rank);
    members_.End(id, MemberState::kRejoins,
                 absl::StrCat("the job went back to step ", saved_->manifest.step));
  }
  start_list_.GoBack(started_ ? std::make_optional(std::move(were_members)) : std::nullopt);
  partial_pushes_ = partial_pushes();
  members_.UndoForgotten(saved_->manifest.step);
  // What they did since is undone: nobody is to count by it.
  for (const auto& [id, record] : members_.all()) {
    MemberRecord* const member = members_.Find(id);
    member->counted_by.clear();
    member->last_counted.clear();
    member->site_until.reset();
    member->first_step = std::min<uint64_t>(member->first_step, saved_->manifest.step);
    if (member->had_begun()) member->first_exchange = Exchange(1);
    member->progress.set_exchange(0);
    member->progress.set_step(std::min<uint64_t>(member->progress.step(), saved_->manifest.step));
    if (record.state != MemberState::kRejoins) continue;
    v1::Progress kept;
    kept.mutable_traffic()->Swap(member->progress.mutable_traffic());
    kept.mutable_phases()->Swap(member->progress.mutable_phases());
    member->progress = std::move(kept);
  }
  begun_from_ = saved_;
  begun_from_sum_ = SumOf(begun_from_->manifest);
  started_ = false;
  paused_ = false;
  last_left_ = false;
  open_.reset();
  checkpoint_first_.reset();
  agreed_checkpoint_.reset();
  checkpoint_order_.reset();
  sites_begin_ = Exchange();
  parts_.Clear();
  if (owners_) owners_->GoBack();
  servers_.GoBack();
  generation_ = std::max(generation_, Generation(saved_->manifest.generation)).Next();
  restore_generation_ = generation_;
  v1::PlanMessage message;
  *message.mutable_restore() = RestoreText();
  message.set_withdraw(last_proposal_);
  SendToAll(message);
}

uint64_t Membership::ExamplesOf(const MemberRecord& member) const {
  // What those of before it went back did is undone, or in examples_before().
  if (member.planned_in <= restore_generation_) return 0;
  return member.report ? member.report->examples() : member.progress.examples();
}

uint64_t Membership::examples_before() const {
  if (begun_from_ == nullptr) return 0;
  if (begun_from_->job.examples) return *begun_from_->job.examples;
  // An older checkpoint does not say: as if those who are in it had made all its steps.
  uint64_t steps = 0;
  for (const CheckpointMember& member : begun_from_->manifest.members) steps += member.step;
  return steps * static_cast<uint64_t>(facts_.batch_size);
}

Exchange Membership::ReachedExchange() const {
  const Exchange committed = servers_.HighestCommitted();
  Exchange reached = std::max(members_.HighestExchange(), committed);
  if (facts_.synchronous) {
    // Too little does no harm: servers promise a later one.
    const Exchange common =
        members_.Counted().empty() ? committed : std::max(committed, members_.LeastExchange());
    reached = std::min(reached, Exchange(common.value() + kAheadMax));
  }
  if (begun_from_ == nullptr || !facts_.synchronous) return reached;
  // Those who went on from there may be lost before anybody has heard of an exchange of theirs.
  return std::max(reached, Exchange(begun_from_->manifest.exchange));
}

ExchangeSteps Membership::exchange_steps() const {
  if (begun_from_ == nullptr) return {facts_.local_steps, nullptr};
  const Manifest& manifest = begun_from_->manifest;
  const CheckpointMember* const last = LastOf(manifest);
  if (facts_.synchronous || last == nullptr) return {facts_.local_steps, &manifest};
  return {facts_.local_steps, last->exchange, last->step};
}

v1::RestoreOrder Membership::RestoreText() const {
  v1::RestoreOrder order;
  order.set_generation(restore_generation_.value());
  order.set_step(begun_from_->manifest.step);
  order.set_from_restore(begun_from_->from_restore);
  order.set_manifest_sum(begun_from_sum_);
  return order;
}

void Membership::OnRestored(ShardId server, const v1::RestoreReply& reply, absl::Time now) {
  // Of an order that was replaced, or that nobody gave.
  if (Generation(reply.generation()) != restore_generation_ || begun_from_ == nullptr) return;
  if (!reply.error().empty()) {
    if (!failure_) failure_ = absl::StrCat("server ", server.value(), ": ", reply.error());
    ++changes_;
    return;
  }
  const bool is_news = servers_.OnRestored(server, Generation(reply.generation()), now);
  if (is_news && owners_) owners_->OnRestored(server, now);
  TryStart();
}

void Membership::BeginMember(MemberRecord* member) const {
  member->first_exchange = Exchange(1);
  if (begun_from_ == nullptr) return;
  const Manifest& manifest = begun_from_->manifest;
  member->restored = true;
  if (facts_.synchronous) {
    member->first_exchange = Exchange(manifest.exchange + 1);
    member->first_step = manifest.step;
    return;
  }
  // Members advanced on their own: each goes on from where it was, and one more from the last of them.
  const CheckpointMember* from = LastOf(manifest);
  for (const CheckpointMember& saved : manifest.members) {
    if (saved.rank == member->rank.value()) from = &saved;
  }
  member->first_step = from != nullptr ? from->step : manifest.step;
  member->first_exchange =
      Exchange(from != nullptr ? from->exchange + 1 : manifest.step / facts_.local_steps + 1);
}

}  // namespace tessera
