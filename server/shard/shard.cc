#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/checkpoint/manifest.h"
#include "common/codec/arrival_check.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/forms/form_table.h"
#include "server/shard/stored_values.h"

namespace tessera {
namespace {

// What workers say may be wrong, but a checkpoint of it has to be read again.
uint64_t SavedSum(uint64_t a, uint64_t b) {
  return b < kSavedCountEnd - 1 && a < kSavedCountEnd - 1 - b ? a + b : kSavedCountEnd - 1;
}

}  // namespace

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
    return absl::InvalidArgumentError(absl::StrCat(
        Where(push), ": layout_hash is ", absl::Hex(push.layout_hash), ", want ",
        absl::Hex(traits_.layout_hash), "; the model or the number of servers differs"));
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
  if (next != staged_.end() && limits_.folds_wait_for_readers &&
      !gate_.Opens(store_.HasReaders(), now)) {
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

int64_t Shard::memory_bytes() const { return traits_.slices.bytes() + form_->memory_bytes(); }

// --- updates ---

Update Shard::BeginCommit(float scale) {
  counters_.version = counters_.version.Next();
  Update update;
  update.scale = scale;
  update.number = counters_.version.value();
  update.rate = static_cast<float>(schedule_.Factor(counters_.examples, pending_examples_));
  counters_.examples = SavedSum(counters_.examples, pending_examples_);
  pending_examples_ = 0;
  open_folds_ = 0;
  return update;
}

void Shard::Commit(float scale, absl::Time now) {
  form_->Commit(BeginCommit(scale));
  if (records_) RecordCommit(now);
  form_->OnChange();
}

void Shard::CountStaleness(Version base) {
  const uint64_t staleness = counters_.version.value() - base.value();
  ++counters_.staleness[std::min<uint64_t>(staleness, counters_.staleness.size() - 1)];
  counters_.staleness_sum = SavedSum(counters_.staleness_sum, staleness);
  counters_.staleness_max = std::max(counters_.staleness_max, staleness);
}

// --- members: who is counted from which exchange on, who rests, whose pushes have a place ---

void Shard::Rest(MemberId id, Exchange after, RestWord word) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  MemberState& member = found->second;
  // Words of one number come in the order rest, end of rest; repeated ones may come at any time.
  const bool is_new = word.rests ? word.number > member.rest_number
                                 : word.number >= member.rest_number && word.number > 0;
  if (!is_new) return;
  member.rest_number = word.number;
  if (!word.rests) {
    if (member.rests_after) Wake(id, &member);
    return;
  }
  member.rests_after = after;
  if (member.folded == after) policy_->SetResting(id, true);
}

void Shard::Wake(MemberId id, MemberState* member) {
  member->rests_after.reset();
  policy_->SetResting(id, false);
}

std::vector<Shard::Removed> Shard::SetPlan(const Plan& plan) {
  std::vector<Removed> removed;
  if (plan.generation <= plan_.generation) return removed;
  absl::flat_hash_set<MemberId> stay;
  for (const PlanMember& m : plan.members) stay.insert(m.member);
  for (const PlanMember& m : plan_.members) {
    if (stay.contains(m.member)) continue;
    const MemberState& state = members_[m.member];
    removed.push_back({m.member, replica_ ? state.accepted : state.folded});
    if (replica_) replica_->Remember(m.member, state.folded);
    members_.erase(m.member);
    form_->Forget(m.member);
  }
  removed_.insert(removed_.end(), removed.begin(), removed.end());
  while (removed_.size() > kRemovedMax) removed_.pop_front();
  // The other replicas may have folded what this one has accepted.
  const bool drops = !removed.empty() && !replica_;
  for (auto it = staged_.begin(); drops && it != staged_.end();) {
    if (stay.contains(it->member)) {
      ++it;
      continue;
    }
    counters_.staged_bytes -= it->payload.size();
    it = staged_.erase(it);
  }
  for (const PlanMember& m : plan.members) {
    if (members_.contains(m.member)) continue;
    const Exchange before(m.first_exchange.value() - 1);
    members_[m.member] = {m.first_exchange, before, before};
    open_proposals_.clear();
  }
  plan_ = plan;
  policy_->SetMembers(plan);
  form_->OnChange();
  return removed;
}

Exchange Shard::Propose(uint64_t proposal, Exchange first) {
  // Asked once more, of one that another process has promised in this shard's name: some may go by it.
  for (const Open& open : open_proposals_) {
    if (open.proposal == proposal) return open.first;
  }
  if (form_->knows_members()) {
    // The open one may be folded in part, and its end opens the next one.
    const uint64_t open = policy_->Collecting().value();
    if (first.value() < open + 2) first = Exchange(open + 3);
  } else {
    first = policy_->FirstExchange(first);
  }
  open_proposals_.push_back({proposal, first});
  return first;
}

void Shard::Withdraw(uint64_t proposal) {
  open_proposals_.erase(std::remove_if(open_proposals_.begin(), open_proposals_.end(),
                                       [&](const Open& open) { return open.proposal <= proposal; }),
                        open_proposals_.end());
}

std::vector<MemberId> Shard::WaitsFor() const {
  std::vector<MemberId> missing = policy_->WaitsFor();
  missing.erase(std::remove_if(missing.begin(), missing.end(),
                               [&](MemberId member) {
                                 return std::any_of(
                                     staged_.begin(), staged_.end(),
                                     [&](const StagedPush& s) { return s.member == member; });
                               }),
                missing.end());
  return missing;
}

// Returns how many of the bytes that are reserved or staged lie in the place that the next in order has of its own.
int64_t Shard::OwnBytes(MemberId next) const {
  const auto found = reserved_.find(next);
  int64_t bytes = found == reserved_.end() ? 0 : found->second;
  for (const StagedPush& push : staged_) {
    if (push.member == next) bytes += push.payload.size();
  }
  return std::min(bytes, traits_.slices.bytes());
}

bool Shard::Reserve(MemberId member, int64_t bytes) {
  const std::optional<MemberId> next = policy_->NextInOrder();
  int64_t taken = reserved_bytes_ + counters_.staged_bytes;
  // Where order matters the next in order has a place of its own, which takes none of the others' room;
  // elsewhere what there is for it is anybody's.
  if (next.has_value()) taken -= OwnBytes(*next);
  const int64_t limit = limits_.staging_bytes + (next.has_value() ? 0 : traits_.slices.bytes());
  const bool is_next = next.has_value() ? *next == member : taken == 0;
  if (!is_next && taken + bytes > limit && !IsUnheard(member)) return false;
  reserved_[member] += bytes;
  reserved_bytes_ += bytes;
  return true;
}

int64_t Shard::PushesBefore(MemberId member) const {
  const std::optional<MemberId> next = policy_->NextInOrder();
  if (!next.has_value()) return 0;
  const auto place = [&](MemberId id) {
    const auto found = std::find_if(plan_.members.begin(), plan_.members.end(),
                                    [id](const PlanMember& m) { return m.member == id; });
    return found == plan_.members.end() ? 0 : found - plan_.members.begin();
  };
  // Who comes before the next in order has been folded: its turn is in the next exchange.
  const int64_t distance = place(member) - place(*next);
  return distance < 0 ? distance + static_cast<int64_t>(plan_.members.size()) : distance;
}

void Shard::Release(MemberId member, int64_t bytes) {
  const auto found = reserved_.find(member);
  if (found == reserved_.end()) return;  // Small pushes arrive whole and reserve nothing.
  const int64_t given_back = std::min(bytes, found->second);
  found->second -= given_back;
  reserved_bytes_ -= given_back;
  if (found->second == 0) reserved_.erase(found);
}

// --- checkpoints ---

absl::Status Shard::Order(const CopyOrder& order) {
  if (order.mark.number == copied_.mark.number && !is_copied_here_) {
    return absl::AbortedError("the leader that had copied this shard was lost with its copy");
  }
  if (order.mark.number > copied_.mark.number) order_ = order;
  return absl::OkStatus();
}

bool Shard::IsCopyDue() const {
  if (!order_.has_value()) return false;
  if (order_->after == kCopyAtOnce) return true;
  if (order_->after == Exchange(0)) return !form_->holds_sum();
  return policy_->Collecting() > order_->after;
}

std::optional<ShardCopy> Shard::TakeCopy() {
  if (!IsCopyDue()) return std::nullopt;
  copied_ = *std::exchange(order_, std::nullopt);
  is_copied_here_ = true;
  ShardCopy copy;
  copy.order = copied_;
  copy.values = ReadNow();
  // Folds do not wait for a disk.
  copy.values.snapshot = store_.TakeKeptSnapshot();
  copy.counters = counters();
  for (const auto& [id, member] : members_) copy.folded.push_back({id, member.folded});
  std::sort(copy.folded.begin(), copy.folded.end());
  copy.whole_next = form_->is_whole_next();
  const bool is_end = copied_.after == kCopyAtOnce;
  const Exchange of = is_end ? Exchange(policy_->Collecting().value() - 1) : copied_.after;
  state_copies_.resize(form_->saved_arrays());
  for (size_t s = 0; s < state_copies_.size(); ++s) {
    std::shared_ptr<std::vector<float>>& kept = state_copies_[s];
    // The memory of the last copy, unless that is still being written.
    if (kept == nullptr || kept.use_count() > 1) kept = std::make_shared<std::vector<float>>();
    form_->Save(static_cast<int>(s), of, kept.get());
    copy.states.push_back(kept);
  }
  return copy;
}

ReadResult Shard::ReadAfter(Exchange after) {
  ReadResult read = ReadNow();
  if (copied_.after == Exchange(0) || copied_.after == after) read.checkpoint = copied_.mark;
  return read;
}

absl::Status Shard::Load(const SavedShard& saved) {
  const std::vector<std::vector<float>*> arrays = form_->BeginLoad();
  int block = 0;
  for (const Slice& slice : traits_.slices.slices) {
    const int64_t slice_end = slice.offset + slice.size();
    int64_t row = slice.row_begin;
    for (; block < store_.block_count() && store_.offset(block) < slice_end; ++block) {
      const BlockStore::Rewrite write = store_.BeginRewrite(block);
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
  form_->EndLoad(saved);
  counters_ = saved.counters;
  is_loaded_ = true;
  return absl::OkStatus();
}

}  // namespace tessera
