#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/arrival_check.h"
#include "server/shard/stored_values.h"

namespace tessera {

Shard::Shard(Options options)
    : state_(std::move(options)),
      replica_(&state_, [this](absl::Time now) { return Advance(now); }) {}

absl::Status Shard::Validate(ReceivedPush* received, const ExchangeForm::Found& of) const {
  ReceivedPush& push = *received;
  const ExchangedEntries& entries = *of.entries;
  // The layout is compared first: everything after it counts on the same parameters in the same places.
  if (push.layout_hash != state_.traits.layout_hash) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(push), ": layout_hash is ", absl::Hex(push.layout_hash), ", want ",
        absl::Hex(state_.traits.layout_hash), "; the model or the number of servers differs"));
  }
  if (push.kind != of.kind) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": payload kind is ", push.kind,
                                                   ", want ", of.kind,
                                                   "; the job's methods differ"));
  }
  if (push.examples > kPushExamplesMax) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": examples are ", push.examples,
                                                   ", want at most ", kPushExamplesMax));
  }
  if (push.codec != Codec() && push.codec != state_.traits.codecs.push) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": codec is ", push.codec->name(),
                                                   ", want ", state_.traits.codecs.push->name(),
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
  // Entries of a run are checked as they arrive; others only here, where their number is known.
  if (!entries.run() && !IsPlain(push.codec)) {
    push.bad_entry = FirstBadEntry(*coded, push.payload);
  }
  if (push.bad_entry >= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(push), ": ",
                     entries.Describe(state_.traits.shape, state_.traits.slices, push.bad_entry),
                     " is not finite; the training diverged, try a lower learning rate"));
  }
  if (push.from_peer && !state_.is_replica) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(push), ": sender pulls from another replica, want none; the job's methods differ"));
  }
  // A base that is ahead comes from another history, as after this shard was restored.
  if (!push.from_peer && push.base > state_.counters.version) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": base version is ",
                                                   push.base.value(), ", ahead of the shard's ",
                                                   state_.counters.version.value()));
  }
  return absl::OkStatus();
}

absl::StatusOr<PushAccepted> Shard::Accept(ReceivedPush push) {
  ShardMember* const member = state_.members.Find(push.member);
  ShardCounters& counters = state_.counters;
  if (member == nullptr) {
    const absl::Status why = state_.members.NotMember(Where(push));
    // A server that has just begun and knows no plan yet is no reason to count a refusal.
    if (!absl::IsUnavailable(why)) ++counters.refused;
    return why;
  }
  // The push is here already: its acknowledgement was lost, and is given again.
  if (push.exchange <= member->accepted) {
    ++counters.duplicates;
    return PushAccepted{/*duplicate=*/true, counters.version};
  }
  // In front of the checks that cost more: a joining server may be sent far more than it can keep.
  TESSERA_RETURN_IF_ERROR(replica_.CheckKept(push));
  absl::StatusOr<ExchangeForm::Found> of = state_.form->EntriesOf(push);
  if (of.ok() && of->needs_keys) return PushAccepted{false, counters.version, /*need_keys=*/true};
  absl::Status status = of.ok() ? Validate(&push, *of) : of.status();
  if (status.ok() && push.exchange != member->accepted.Next() && !replica_.IsUnheard(push.member)) {
    status = absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": want exchange ", member->accepted.Next().value(), " next"));
  }
  if (status.ok() && state_.policy->Collecting() != Exchange(0) &&
      push.exchange != state_.policy->Collecting()) {
    status = absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": exchange ", state_.policy->Collecting().value(),
                     " is still being collected; pull before pushing"));
  }
  if (status.ok()) status = state_.form->CheckTogether(push);
  if (!status.ok()) {
    ++state_.counters.refused;
    if (push.bad_entry >= 0) ++state_.counters.refused_non_finite;
    return status;
  }
  state_.members.OnAccepted(push.member, push.exchange, member);
  state_.form->OnAccepted(push, *of->entries);
  // What the push reserved is free from now on, as the stage counts the push itself.
  Release(push.member, push.reserved_bytes);
  const CodedKeys* const coded = of->entries->forms().Find(push.codec);
  state_.stage.Add({std::move(push), std::move(of->entries), coded});
  ++counters.pushes;
  return PushAccepted{/*duplicate=*/false, counters.version};
}

bool Shard::Reserve(MemberId member, int64_t bytes) {
  return state_.stage.Reserve(member, bytes, /*has_place=*/replica_.IsUnheard(member));
}

// A form that must know who is in an exchange before it begins lets the one in front of it end no earlier, either.
bool Shard::IsHeld(Exchange exchange) const {
  if (state_.policy->Collecting() == Exchange(0)) return false;
  const Exchange last = state_.form->knows_members() ? exchange.Next() : exchange;
  const std::vector<ProposeEvent>& open = state_.members.proposals();
  return std::any_of(open.begin(), open.end(),
                     [last](const ProposeEvent& proposal) { return proposal.first <= last; });
}

bool Shard::Advance(absl::Time now) {
  // A standby, which is told the time in whole nanoseconds, has to come to the same decisions.
  now = absl::FromUnixNanos(absl::ToUnixNanos(now));
  // A server that waits for its copy must not fold: the copy contains what it would fold.
  if (replica_.awaits_copy()) return false;
  // A piece at a time: what comes meanwhile is answered.
  if (state_.form->AdvanceSelection()) return true;
  if (!AdvancePushes(now)) return state_.form->Prepare();
  if (log_ != nullptr) log_->OnAdvance(now);
  return true;
}

bool Shard::AdvancePushes(absl::Time now) {
  gate_.Rest();
  // A proposal that is not settled may add a member to the exchange being collected.
  if (IsHeld(state_.policy->Collecting())) return false;
  const bool has_next = state_.stage.Next() != nullptr;
  // Where memory is short a fold waits until readers of the old values have gone, so that no block is copied.
  if (has_next && state_.limits.folds_wait_for_readers &&
      !gate_.Opens(state_.store.HasReaders(), now)) {
    return false;
  }
  if (!has_next) {
    const std::optional<float> scale = state_.policy->CommitDue(now);
    if (!scale.has_value()) return false;
    Commit(*scale, now);
    return true;
  }
  const StagedPush push = state_.stage.TakeNext();
  const Version version = state_.counters.version;
  const Verdict verdict =
      state_.BeginFold({push.member, push.exchange, push.from_peer ? version : push.base, version,
                        push.examples, now},
                       /*has_base=*/!push.from_peer);
  if (log_ != nullptr) {
    log_->OnFold({push.member, push.exchange, push.base, push.examples, now});
  }
  ShardMember* const member = state_.members.Find(push.member);
  // Before the commit, which may have the form look at who has begun.
  if (member != nullptr) member->folded = push.exchange;
  state_.form->OnFolded(push.member, push.exchange);
  // A standby needs the sum, which there is only where the last push is added to it before it is applied.
  const bool keeps_sum = log_ != nullptr && state_.CombinesPushes();
  if (verdict.commit && !keeps_sum) {
    state_.form->FoldAndCommit(push, verdict.weight, state_.BeginCommit(verdict.commit_scale));
    state_.form->OnChange();
  } else {
    state_.form->Fold(push, verdict.weight);
    if (verdict.commit) Commit(verdict.commit_scale, now);
  }
  if (member == nullptr) {
    // A member that has left still counts: later copies and checkpoints must know what of it was folded.
    state_.members.SetDepartedFolded(push.member, push.exchange);
  } else {
    state_.members.RestIfDue(push.member, *member);
  }
  return true;
}

void Shard::Commit(float scale, absl::Time now) {
  state_.form->Commit(state_.BeginCommit(scale));
  if (log_ != nullptr) log_->OnCommit(now);
  state_.form->OnChange();
}

std::optional<absl::Time> Shard::Deadline() const {
  const std::optional<absl::Time> due = state_.policy->Deadline(), again = gate_.look_again();
  if (due.has_value() && again.has_value()) return std::min(*due, *again);
  return due.has_value() ? due : again;
}

absl::StatusOr<std::optional<ReadResult>> Shard::Read(MemberId member, Exchange after,
                                                      const NamedKeys& keys) {
  const auto refuse = [&](const absl::Status& why) {
    // The words say what the caller has asked for, as a worker's log shows them.
    const std::string round = std::holds_alternative<SubnetPlace>(keys)
                                  ? absl::StrCat(" round ", after.Next().value())
                                  : "";
    return absl::Status(why.code(), absl::StrCat(round.empty() ? "pull" : "fetch", " from member ",
                                                 member.value(), round, ": ", why.message()));
  };
  if (const absl::Status status = state_.form->CheckRead(keys); !status.ok()) return refuse(status);
  const ShardMember* const state = state_.members.Find(member);
  if (state == nullptr) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("not a member of the current plan (generation ", plan().generation.value(),
                     "); its lease has ended, or it never joined")));
  }
  const absl::Status in_time = state_.form->CheckReadTime(after, state->first, keys);
  if (!in_time.ok()) return refuse(in_time);
  if (replica_.awaits_copy()) return std::optional<ReadResult>();
  // A worker always sees its own pushes.
  if (after >= state->first && state->folded < after) return std::optional<ReadResult>();
  if (!state_.policy->MayRead(member, after)) return std::optional<ReadResult>();
  // An exchange that nobody is left to make may have been promised: it is not over before that is
  // settled.
  if (IsHeld(after)) return std::optional<ReadResult>();
  absl::StatusOr<std::optional<std::shared_ptr<const ExchangedEntries>>> entries =
      state_.form->EntriesOfRead(*plan().Find(member), after, keys);
  if (!entries.ok()) return refuse(entries.status());
  if (!entries->has_value()) return std::optional<ReadResult>();
  ReadResult read = ReadNow();
  // The mark tells a worker that a checkpoint is made after this exchange, and that it must save its own state.
  read.checkpoint = state_.copies.MarkOf(after);
  read.entries = **std::move(entries);
  return std::make_optional(std::move(read));
}

absl::StatusOr<std::optional<std::shared_ptr<const Core>>> Shard::ReadCore(MemberId member,
                                                                           uint64_t number) {
  CoreExchange* const cores = state_.form->cores();
  if (cores == nullptr || plan().Find(member) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "pull from member ", member.value(), ": ",
        cores == nullptr ? "the job's method has no core" : "not a member of the current plan"));
  }
  // A core that is still being selected is waited for.
  if (cores->cores() <= number) return std::optional<std::shared_ptr<const Core>>();
  return std::make_optional(cores->core());
}

ShardCounters Shard::counters() const {
  ShardCounters counters = state_.counters;
  counters.collecting = state_.policy->Collecting();
  counters.staged_bytes = state_.stage.bytes();
  for (const auto& [id, member] : members().states()) {
    counters.resting += member.rests_after.has_value();
  }
  counters.copied_bytes_peak = state_.store.copied_bytes_peak();
  counters.blocks_allocated = state_.store.blocks_allocated();
  return counters;
}

uint64_t Shard::ParametersHash() const { return HashOf(state_.store, state_.traits.slices); }

int64_t Shard::memory_bytes() const {
  return state_.traits.slices.bytes() + state_.form->memory_bytes();
}

// Plans come again with every connection to the coordinator: one that is not newer changes nothing.
std::vector<Shard::Removed> Shard::SetPlan(const Plan& next) {
  if (next.generation <= plan().generation) return {};
  std::vector<Removed> removed = state_.members.SetPlan(next);
  for (const Removed& member : removed) state_.form->Forget(member.member);
  // The other replicas may have folded what this one has accepted.
  if (!removed.empty() && !state_.is_replica) {
    state_.stage.DropIf(
        [this](const StagedPush& push) { return state_.members.Find(push.member) == nullptr; });
  }
  // Who has begun may have changed, by which a form may have something to begin, such as the selection of a core.
  state_.form->OnChange();
  return removed;
}

Exchange Shard::Propose(uint64_t proposal, Exchange first) {
  // Asked once more, of one that another process has promised in this shard's name: some may go by it.
  for (const ProposeEvent& open : members().proposals()) {
    if (open.proposal == proposal) return open.first;
  }
  if (state_.form->knows_members()) {
    // The open one may be folded in part, and its end opens the next one.
    const uint64_t open = state_.policy->Collecting().value();
    if (first.value() < open + 2) first = Exchange(open + 3);
  } else {
    first = state_.policy->FirstExchange(first);
  }
  state_.members.Promise({proposal, first});
  return first;
}

bool Shard::IsCopyDue() const {
  const std::optional<CopyOrder>& order = state_.copies.open();
  if (!order.has_value()) return false;
  // An order at once is the end of the job; exchange 0 waits until no sum is half collected.
  if (order->after == kCopyAtOnce) return true;
  if (order->after == Exchange(0)) return !state_.form->holds_sum();
  return state_.policy->Collecting() > order->after;
}

std::optional<ShardCopy> Shard::TakeCopy() {
  if (!IsCopyDue()) return std::nullopt;
  ShardCopy copy;
  copy.order = state_.copies.Take();
  copy.values = ReadNow();
  // Folds do not wait for a disk.
  // A kept snapshot is never revoked: the file needs all blocks of one version.
  copy.values.snapshot = state_.store.TakeKeptSnapshot();
  copy.counters = counters();
  for (const auto& [id, member] : members().states()) copy.folded.push_back({id, member.folded});
  // Sorted, as a checkpoint's bytes must not depend on a hash table.
  std::sort(copy.folded.begin(), copy.folded.end());
  copy.whole_next = state_.form->is_whole_next();
  const bool is_end = copy.order.after == kCopyAtOnce;
  const Exchange of = is_end ? Exchange(state_.policy->Collecting().value() - 1) : copy.order.after;
  state_copies_.resize(state_.form->saved_arrays());
  for (size_t s = 0; s < state_copies_.size(); ++s) {
    std::shared_ptr<std::vector<float>>& kept = state_copies_[s];
    // The memory of the last copy, unless that is still being written.
    if (kept == nullptr || kept.use_count() > 1) kept = std::make_shared<std::vector<float>>();
    state_.form->Save(static_cast<int>(s), of, kept.get());
    copy.states.push_back(kept);
  }
  return copy;
}

absl::Status Shard::Load(const SavedShard& saved) {
  const std::vector<std::vector<float>*> arrays = state_.form->BeginLoad();
  int block = 0;
  for (const Slice& slice : state_.traits.slices.slices) {
    const int64_t slice_end = slice.offset + slice.size();
    int64_t row = slice.row_begin;
    for (; block < state_.store.block_count() && state_.store.offset(block) < slice_end; ++block) {
      // Values are read block by block into place; a large slice is never held twice.
      const BlockStore::Rewrite write = state_.store.BeginRewrite(block);
      const int64_t rows = write.size / slice.columns;
      TESSERA_RETURN_IF_ERROR(
          saved.read_rows(slice.parameter, /*state=*/-1, row, row + rows, write.out));
      row += rows;
    }
    for (size_t s = 0; s < arrays.size(); ++s) {
      TESSERA_RETURN_IF_ERROR(saved.read_rows(slice.parameter, static_cast<int>(s), slice.row_begin,
                                              slice.row_end, arrays[s]->data() + slice.offset));
    }
  }
  state_.form->EndLoad(saved);
  state_.counters = saved.counters;
  state_.is_loaded = true;
  return absl::OkStatus();
}

}  // namespace tessera
