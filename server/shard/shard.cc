#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/arrival_check.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/forms/form_table.h"
#include "server/shard/stored_values.h"

namespace tessera {
Shard::Shard(Options options)
    : traits_(TraitsOf(options)),
      policy_(std::move(options.policy)),
      rule_(std::move(options.rule)),
      schedule_(std::move(options.schedule)),
      limits_(options.limits.has_value()
                  ? *options.limits
                  : PlanShardMemory({&traits_.shape, traits_.slices, 0, 1, nullptr}).limits),
      store_(traits_.slices, std::max(limits_.copy_bytes, kBlockBytes)) {
  if (options.placement == Placement::kReplicated) replica_.emplace();
  // A core is selected from the initial values at once.
  if (!options.awaits_load || options.core) {
    FillInitial(traits_.shape, traits_.slices, traits_.seed, &store_);
    counters_.initial_hash = HashOf(store_, traits_.slices);
  }
  FormContext context;
  context.traits = &traits_;
  context.policy = policy_.get();
  context.rule = rule_.get();
  context.plan = &plan_;
  context.store = &store_;
  context.kind = options.kind;
  context.whole_kind = options.whole_kind;
  context.is_replica = replica_.has_value();
  context.begun = [this] {
    absl::flat_hash_set<MemberId> begun;
    for (const auto& [id, member] : members_) {
      if (member.folded >= member.first) begun.insert(id);
    }
    return begun;
  };
  context.next = [this] {
    absl::flat_hash_map<MemberId, Exchange> next;
    for (const auto& [id, member] : members_) next[id] = member.accepted.Next();
    return next;
  };
  form_ = MakeForm(context, options);
}

absl::Status Shard::Validate(ReceivedPush* received, const ExchangeForm::Found& of) const {
  ReceivedPush& push = *received;
  const ExchangedEntries& entries = *of.entries;
  if (push.layout_hash != traits_.layout_hash) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(push), ": layout_hash is ", absl::Hex(push.layout_hash), ", want ",
                     absl::Hex(traits_.layout_hash), "; the model or the number of servers differs"));
  }
  if (push.kind != of.kind) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": payload kind is ", push.kind,
                                                   ", want ", of.kind, "; the job's methods differ"));
  }
  if (push.examples > kPushExamplesMax) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": examples are ", push.examples,
                                                   ", want at most ", kPushExamplesMax));
  }
  if (push.codec != Codec() && push.codec != traits_.codecs.push) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": codec is ", push.codec->name(),
                                                   ", want ", traits_.codecs.push->name(),
                                                   " or f32"));
  }
  const CodedKeys* const coded = entries.forms().Find(push.codec);
  if (coded != nullptr && push.payload.size() != coded->bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(push), ": payload is ", push.payload.size(), " bytes, want ",
                     coded->bytes(), " (", coded->entries(), " entries as ", push.codec->name(),
                     "); layouts differ, compare layout_hash in status"));
  }
  if (entries.is_nothing() && push.payload.size() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(push), ": payload is ", push.payload.size(), " bytes, want 0 (0 entries)"));
  }
  if (!entries.run() && !IsPlain(push.codec)) {
    push.bad_entry = FirstBadEntry(*coded, push.payload);
  }
  if (push.bad_entry >= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(push), ": ", entries.Describe(traits_.shape, traits_.slices, push.bad_entry),
        " is not finite; the training diverged, try a lower learning rate"));
  }
  if (push.from_peer && !replica_) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(push), ": sender pulls from another replica, want none; the job's methods differ"));
  }
  if (!push.from_peer && push.base > counters_.version) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": base version is ",
                                                   push.base.value(), ", ahead of the shard's ",
                                                   counters_.version.value()));
  }
  return absl::OkStatus();
}

absl::Status Shard::NotMember(absl::string_view where) const {
  const absl::string_view colon = where.empty() ? "" : ": ";
  if (replica_ && plan_.generation == Generation()) {
    return absl::UnavailableError(absl::StrCat(where, colon, "the server has just begun"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(where, colon, "not a member of the current plan (generation ",
                   plan_.generation.value(), "); its lease has ended, or it never joined"));
}

absl::StatusOr<PushAccepted> Shard::Accept(ReceivedPush push) {
  const auto found = members_.find(push.member);
  if (found == members_.end()) {
    const absl::Status why = NotMember(Where(push));
    if (!absl::IsUnavailable(why)) ++counters_.refused;
    return why;
  }
  MemberState& member = found->second;
  if (push.exchange <= member.accepted) {
    ++counters_.duplicates;
    return PushAccepted{/*duplicate=*/true, counters_.version};
  }
  if (awaits_copy()) TESSERA_RETURN_IF_ERROR(CheckKept(push, member));
  absl::StatusOr<ExchangeForm::Found> of = form_->EntriesOf(push);
  if (of.ok() && of->needs_keys) return PushAccepted{false, counters_.version, /*need_keys=*/true};
  absl::Status status = of.ok() ? Validate(&push, *of) : of.status();
  if (status.ok() && push.exchange != member.accepted.Next() && !IsUnheard(push.member)) {
    status = absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": want exchange ", member.accepted.Next().value(), " next"));
  }
  if (status.ok() && policy_->Collecting() != Exchange(0) &&
      push.exchange != policy_->Collecting()) {
    status = absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": exchange ", policy_->Collecting().value(),
                     " is still being collected; pull before pushing"));
  }
  if (status.ok()) status = form_->CheckTogether(push);
  if (!status.ok()) {
    ++counters_.refused;
    if (push.bad_entry >= 0) ++counters_.refused_non_finite;
    return status;
  }
  member.accepted = push.exchange;
  if (!member.heard_from.has_value()) member.heard_from = push.exchange;
  form_->OnAccepted(push, *of->entries);
  Release(push.member, push.reserved_bytes);
  counters_.staged_bytes += push.payload.size();
  const CodedKeys* const coded = of->entries->forms().Find(push.codec);
  if (member.rests_after && *member.rests_after < push.exchange) Wake(push.member, &member);
  staged_.push_back({std::move(push), std::move(of->entries), coded});
  ++counters_.pushes;
  return PushAccepted{/*duplicate=*/false, counters_.version};
}

std::deque<StagedPush>::iterator Shard::NextStaged() {
  const std::optional<MemberId> next = policy_->NextInOrder();
  if (!next.has_value()) return staged_.begin();
  return std::find_if(staged_.begin(), staged_.end(),
                      [&](const StagedPush& s) { return s.member == *next; });
}

bool Shard::Holds(Exchange first, Exchange exchange) const {
  if (policy_->Collecting() == Exchange(0)) return false;
  return first <= (form_->knows_members() ? exchange.Next() : exchange);
}

bool Shard::Advance(absl::Time now) {
  if (awaits_copy()) return false;
  advanced_pushes_ = false;
  // A piece at a time: what comes meanwhile is answered.
  if (form_->AdvanceSelection()) return true;
  advanced_pushes_ = AdvancePushes(now);
  return advanced_pushes_ || form_->Prepare();
}

bool Shard::AdvancePushes(absl::Time now) {
  gate_.Rest();
  // A proposal that is not settled may add a member to the exchange being collected: wait for the
  // word.
  for (const Open& open : open_proposals_) {
    if (Holds(open.first, policy_->Collecting())) return false;
  }
  const auto next = NextStaged();
  if (next != staged_.end() && limits_.folds_wait_for_readers && !gate_.Opens(store_.HasReaders(), now)) {
    return false;
  }
  if (next == staged_.end()) {
    const std::optional<float> scale = policy_->CommitDue(now);
    if (!scale.has_value()) return false;
    Commit(*scale, now);
    return true;
  }
  const StagedPush push = std::move(*next);
  staged_.erase(next);
  const Version base = push.from_peer ? counters_.version : push.base;
  if (!push.from_peer) CountStaleness(base);
  const Verdict verdict =
      policy_->OnPush({push.member, push.exchange, base, counters_.version, push.examples, now});
  pending_examples_ += push.examples;
  ++open_folds_;
  if (records_) {
    recorded_.push_back(FoldEvent{push.member, push.exchange, push.base, push.examples, now});
  }
  const auto found = members_.find(push.member);
  // Before the commit, which may have the form look at who has begun.
  if (found != members_.end()) found->second.folded = push.exchange;
  form_->OnFolded(push.member, push.exchange);
  if (verdict.commit && !records_) {
    form_->FoldAndCommit(push, verdict.weight, BeginCommit(verdict.commit_scale));
    form_->OnChange();
  } else {
    form_->Fold(push, verdict.weight);
    if (verdict.commit) Commit(verdict.commit_scale, now);
  }
  counters_.staged_bytes -= push.payload.size();
  if (found == members_.end()) {
    replica_->Remember(push.member, push.exchange);
    return true;
  }
  if (found->second.rests_after == push.exchange) policy_->SetResting(push.member, true);
  return true;
}

std::optional<absl::Time> Shard::Deadline() const {
  const std::optional<absl::Time> due = policy_->Deadline(), again = gate_.look_again();
  if (due.has_value() && again.has_value()) return std::min(*due, *again);
  return due.has_value() ? due : again;
}

absl::StatusOr<std::optional<ReadResult>> Shard::Read(MemberId member, Exchange after,
                                                      const NamedKeys& keys) {
  const auto refuse = [&](const absl::Status& why) {
    const std::string round = std::holds_alternative<SubnetPlace>(keys)
                                  ? absl::StrCat(" round ", after.Next().value())
                                  : "";
    return absl::Status(why.code(), absl::StrCat(round.empty() ? "pull" : "fetch", " from member ",
                                                 member.value(), round, ": ", why.message()));
  };
  if (const absl::Status status = form_->CheckRead(keys); !status.ok()) return refuse(status);
  const auto found = members_.find(member);
  if (found == members_.end()) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("not a member of the current plan (generation ", plan_.generation.value(),
                     "); its lease has ended, or it never joined")));
  }
  const MemberState& state = found->second;
  const absl::Status in_time = form_->CheckReadTime(after, state.first, keys);
  if (!in_time.ok()) return refuse(in_time);
  if (awaits_copy()) return std::optional<ReadResult>();
  // A worker always sees its own pushes.
  if (after >= state.first && state.folded < after) return std::optional<ReadResult>();
  if (!policy_->MayRead(member, after)) return std::optional<ReadResult>();
  // An exchange that nobody is left to make may have been promised: it is not over before that is
  // settled.
  for (const Open& open : open_proposals_) {
    if (Holds(open.first, after)) return std::optional<ReadResult>();
  }
  absl::StatusOr<std::optional<std::shared_ptr<const ExchangedEntries>>> entries =
      form_->EntriesOfRead(*plan_.Find(member), after, keys);
  if (!entries.ok()) return refuse(entries.status());
  if (!entries->has_value()) return std::optional<ReadResult>();
  ReadResult read = ReadAfter(after);
  read.entries = **std::move(entries);
  return std::make_optional(std::move(read));
}

absl::StatusOr<std::optional<std::shared_ptr<const Core>>> Shard::ReadCore(MemberId member,
                                                                           uint64_t number) {
  CoreExchange* const cores = form_->cores();
  if (cores == nullptr || !members_.contains(member)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "pull from member ", member.value(), ": ",
        cores == nullptr ? "the job's method has no core" : "not a member of the current plan"));
  }
  if (cores->cores() <= number) return std::optional<std::shared_ptr<const Core>>();
  return std::make_optional(cores->core());
}

ReadResult Shard::ReadNow() {
  const CoreExchange* const cores = form_->cores();
  return {store_.TakeSnapshot(),
          counters_.version,
          counters_.examples,
          cores == nullptr ? 0 : cores->cores(),
          {},
          plan_.generation,
          nullptr};
}

ShardCounters Shard::counters() const {
  ShardCounters counters = counters_;
  counters.collecting = policy_->Collecting();
  for (const auto& [id, member] : members_) counters.resting += member.rests_after.has_value();
  counters.copied_bytes_peak = store_.copied_bytes_peak();
  counters.blocks_allocated = store_.blocks_allocated();
  return counters;
}

uint64_t Shard::ParametersHash() const { return HashOf(store_, traits_.slices); }

int64_t Shard::memory_bytes() const {
  return traits_.slices.bytes() + form_->memory_bytes();
}

}  // namespace tessera
