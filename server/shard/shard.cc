#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/arrival_check.h"
#include "server/shard/keys_word.h"
#include "server/shard/layer_parts.h"
#include "server/shard/stored_values.h"

namespace tessera {
namespace {

std::string Where(const ReceivedPush& push) {
  return absl::StrCat("push from member ", push.member.value(), " exchange ",
                      push.exchange.value());
}

KeysKind KindOf(const ReceivedPush& push) {
  if (push.layers) return KeysKind::kLayers;
  if (push.core) return KeysKind::kSparse;
  return push.subnet ? KeysKind::kSubnet : KeysKind::kDense;
}

}  // namespace

Shard::Shard(Options options)
    : shape_(std::move(options.shape)),
      id_(options.shard),
      slices_(SlicesOf(shape_, options.shard, options.shard_count)),
      layout_hash_(LayoutHash(shape_, options.shard_count)),
      seed_(options.seed),
      codecs_(options.codecs),
      dense_forms_(codecs_, slices_, shape_),
      kind_(options.kind),
      whole_kind_(options.whole_kind),
      policy_(std::move(options.policy)),
      rule_(std::move(options.rule)),
      schedule_(std::move(options.schedule)),
      limits_(options.limits.has_value()
                  ? *options.limits
                  : PlanShardMemory({&shape_, slices_, 0, 1, nullptr}).limits),
      store_(slices_, std::max(limits_.copy_bytes, kBlockBytes)) {
  if (options.placement == Placement::kReplicated) replica_.emplace();
  // A core is selected from the initial values at once.
  if (!options.awaits_load || options.core) {
    FillInitial(shape_, slices_, options.seed, &store_);
    counters_.initial_hash = HashOf(store_, slices_);
  }
  TESSERA_CHECK(!options.cut || (!options.groups && !options.core));
  if (options.groups) {
    TESSERA_CHECK(policy_->Collecting() != Exchange(0));
    TESSERA_CHECK(!codecs_.holds_back());
    rounds_.emplace(shape_, slices_, *std::move(options.groups), options.seed, codecs_);
    if (whole_kind_) forms_.emplace();
    return;
  }
  if (options.core) {
    // Entries that nobody sends are not touched, and a state would have to be.
    TESSERA_CHECK(rule_->state_count() == 0);
    CoreExchange::Options cores{&shape_,
                                &slices_,
                                layout_hash_,
                                seed_,
                                *options.core,
                                codecs_,
                                policy_->Collecting() != Exchange(0)};
    cores_ = std::make_unique<CoreExchange>(cores, &store_);
    return;
  }
  if (options.cut) {
    TESSERA_CHECK(policy_->Collecting() != Exchange(0) && !replica_);
    halves_.emplace(std::make_shared<const LayerParts>(*options.cut, slices_, shape_, codecs_));
  }
  state_.resize(rule_->state_count());
  for (std::vector<float>& state : state_) state.assign(slices_.size, 0.0f);
}

const CodedKeys* Shard::KeysOf(const Codec& codec, const PushedEntries& of) const {
  if (of.place != nullptr) return of.place->forms.Find(codec);
  if (of.part != nullptr) return of.part->forms.Find(codec);
  return of.site == nullptr ? dense_forms_.Find(codec) : of.site->forms().Find(codec);
}

std::string Shard::DescribeEntryOf(const PushedEntries& of, int64_t entry) const {
  if (of.site != nullptr) return of.site->Describe(shape_, entry);
  if (of.place != nullptr) entry = of.place->keys.entries.places()[entry];
  if (of.part != nullptr) entry += of.part->begin;
  return DescribeEntry(shape_, slices_, entry);
}

absl::Status Shard::Validate(ReceivedPush* received, const PushedEntries& of) const {
  ReceivedPush& push = *received;
  const SiteSubnet* const site = of.site.get();
  if (push.layout_hash != layout_hash_) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(push), ": layout_hash is ", absl::Hex(push.layout_hash), ", want ",
                     absl::Hex(layout_hash_), "; the model or the number of servers differs"));
  }
  const int kind = rounds_ && site == nullptr ? *whole_kind_ : kind_;
  if (push.kind != kind) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": payload kind is ", push.kind,
                                                   ", want ", kind, "; the job's methods differ"));
  }
  if (push.examples > kPushExamplesMax) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": examples are ", push.examples,
                                                   ", want at most ", kPushExamplesMax));
  }
  if (push.codec != Codec() && push.codec != codecs_.push) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": codec is ", push.codec->name(),
                                                   ", want ", codecs_.push->name(), " or f32"));
  }
  const CodedKeys* const keys = KeysOf(push.codec, of);
  if (keys != nullptr && push.payload.size() != keys->bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(push), ": payload is ", push.payload.size(), " bytes, want ",
                     keys->bytes(), " (", keys->entries(), " entries as ", push.codec->name(),
                     "); layouts differ, compare layout_hash in status"));
  }
  if (of.part != nullptr && of.part->entries() == 0 && push.payload.size() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(push), ": payload is ", push.payload.size(), " bytes, want 0 (0 entries)"));
  }
  if ((site != nullptr || of.place != nullptr) && !IsPlain(push.codec)) {
    push.bad_entry = FirstBadEntry(*keys, push.payload);
  }
  if (push.bad_entry >= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(push), ": ", DescribeEntryOf(of, push.bad_entry),
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

void Shard::OpenRound() {
  const Exchange round = policy_->Collecting();
  if (round == opened_round_ && plan_.generation == opened_plan_) return;
  opened_round_ = round;
  opened_plan_ = plan_.generation;
  const std::vector<MemberId> sites = SitesOf(plan_, round);
  rounds_->Open(round, sites, SharesOf(plan_, round, sites));
}

// The subnet that `push` must be of: nullptr for all entries.
absl::StatusOr<std::shared_ptr<const SiteSubnet>> Shard::SiteOf(const ReceivedPush& push) {
  if (push.subnet ? !trains_subnets() : !takes_whole()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(push), ": keys are ", KeysWord(!push.subnet), ", want ",
                     KeysWord(push.subnet.has_value()), "; the job's methods differ"));
  }
  if (!push.subnet) return std::shared_ptr<const SiteSubnet>();
  const Exchange open = policy_->Collecting();
  if (push.subnet->round != push.exchange.value() || push.exchange != open) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": subnet is of round ", push.subnet->round, ", want round ",
                     open.value(), ", which is open; fetch before pushing"));
  }
  OpenRound();
  std::shared_ptr<const SiteSubnet> site = rounds_->Of(push.member);
  if (site == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": not a site of round ", open.value()));
  }
  if (!(site->place() == *push.subnet)) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": subnet is ", DescribeSite(*push.subnet), ", want ",
                     DescribeSite(site->place()), " in round ", open.value()));
  }
  return site;
}

absl::StatusOr<Shard::PushedEntries> Shard::EntriesOf(const ReceivedPush& push) {
  PushedEntries of;
  const absl::StatusOr<const LayerPart*> part =
      FindPushedPart(halves_ ? halves_->parts().get() : nullptr, push.layers, push.summed,
                     KeysWord(KindOf(push)), KeysWord(!rounds_));
  if (!part.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(Where(push), ": ", part.status().message()));
  }
  of.part = *part;
  if (of.part != nullptr) return of;
  if (cores_ == nullptr && push.core) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(push), ": keys are sparse, want ", KeysWord(!rounds_), "; the job's methods differ"));
  }
  if (cores_ == nullptr || push.subnet) {
    TESSERA_ASSIGN_OR_RETURN(of.site, SiteOf(push));
    return of;
  }
  TESSERA_ASSIGN_OR_RETURN(
      const CoreExchange::Found found,
      cores_->PlaceOfPush(Where(push), *plan_.Find(push.member), push.exchange, push.core));
  of.place = found.place;
  of.need_keys = found.need_keys;
  return of;
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
  absl::StatusOr<PushedEntries> of = EntriesOf(push);
  if (of.ok() && of->need_keys) return PushAccepted{false, counters_.version, /*need_keys=*/true};
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
  const ExchangeForm form{push.exchange, !push.subnet, !push.subnet || push.whole_next};
  if (status.ok() && forms_) status = forms_->Check(Where(push), form);
  if (!status.ok()) {
    ++counters_.refused;
    if (push.bad_entry >= 0) ++counters_.refused_non_finite;
    return status;
  }
  member.accepted = push.exchange;
  if (!member.heard_from.has_value()) member.heard_from = push.exchange;
  if (forms_) forms_->Take(form);
  // Not before: whoever follows hears of no push that was refused.
  if (of->place != nullptr) cores_->OnAccepted(*of->place);
  Release(push.member, push.reserved_bytes);
  counters_.staged_bytes += push.payload.size();
  const CodedKeys* const keys = KeysOf(push.codec, *of);
  if (member.rests_after && *member.rests_after < push.exchange) Wake(push.member, &member);
  staged_.push_back({std::move(push), *std::move(of), keys});
  ++counters_.pushes;
  return PushAccepted{/*duplicate=*/false, counters_.version};
}

std::deque<Shard::Staged>::iterator Shard::NextStaged() {
  const std::optional<MemberId> next = policy_->NextInOrder();
  if (!next.has_value()) return staged_.begin();
  return std::find_if(staged_.begin(), staged_.end(),
                      [&](const Staged& s) { return s.member == *next; });
}

bool Shard::Holds(Exchange first, Exchange exchange) const {
  if (policy_->Collecting() == Exchange(0)) return false;
  return first <= (knows_members() ? exchange.Next() : exchange);
}

bool Shard::Advance(absl::Time now) {
  if (awaits_copy()) return false;
  advanced_pushes_ = false;
  // A piece at a time: what comes meanwhile is answered.
  if (cores_ != nullptr && cores_->AdvanceSelection()) return true;
  advanced_pushes_ = AdvancePushes(now);
  return advanced_pushes_ || PrepareKeys();
}

bool Shard::AdvancePushes(absl::Time now) {
  gate_.Rest();
  // A proposal that is not settled may add a member to the exchange being collected: wait for the
  // word.
  for (const Open& open : open_proposals_) {
    if (Holds(open.first, policy_->Collecting())) return false;
  }
  const auto next = NextStaged();
  const bool copies_nothing = rounds_.has_value() && limits_.folds_wait_for_readers;
  if (next != staged_.end() && copies_nothing && !gate_.Opens(store_.HasReaders(), now)) {
    return false;
  }
  if (next == staged_.end()) {
    const std::optional<float> scale = policy_->CommitDue(now);
    if (!scale.has_value()) return false;
    if (cores_ != nullptr) {
      CommitEntries(*scale);
    } else if (rounds_ && pending_count_ == 0) {
      CommitRound();
    } else if (halves_) {
      CommitHalves();
    } else {
      Commit(*scale, now);
    }
    return true;
  }
  const Staged push = std::move(*next);
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
  if (push.of.site != nullptr) {
    rounds_->Fold(*push.of.site, *push.keys, push.payload, verdict.weight, &store_);
    if (verdict.commit) CommitRound();
  } else if (cores_ != nullptr) {
    cores_->Fold(push.of.place.get(), *push.keys, push.payload, verdict.weight);
    cores_->OnPush(push.member, push.exchange);
    members_[push.member].folded = push.exchange;
    if (verdict.commit) CommitEntries(verdict.commit_scale);
  } else if (halves_) {
    FoldHalf(push, verdict.commit);
  } else if (verdict.commit && !records_) {
    FoldAndCommit(push, verdict);
  } else {
    Fold(push, verdict.weight);
    if (verdict.commit) Commit(verdict.commit_scale, now);
  }
  counters_.staged_bytes -= push.payload.size();
  const auto found = members_.find(push.member);
  if (found == members_.end()) {
    replica_->Remember(push.member, push.exchange);
    return true;
  }
  found->second.folded = push.exchange;
  if (found->second.rests_after == push.exchange) policy_->SetResting(push.member, true);
  return true;
}

std::optional<absl::Time> Shard::Deadline() const {
  const std::optional<absl::Time> due = policy_->Deadline(), again = gate_.look_again();
  if (due.has_value() && again.has_value()) return std::min(*due, *again);
  return due.has_value() ? due : again;
}

absl::StatusOr<std::optional<ReadResult>> Shard::Read(MemberId member, Exchange after) {
  const auto found = members_.find(member);
  if (found == members_.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "pull from member ", member.value(), ": not a member of the current plan (generation ",
        plan_.generation.value(), "); its lease has ended, or it never joined"));
  }
  if (awaits_copy()) return std::optional<ReadResult>();
  // A worker always sees its own pushes.
  const MemberState& state = found->second;
  if (after >= state.first && state.folded < after) return std::optional<ReadResult>();
  if (!policy_->MayRead(member, after)) return std::optional<ReadResult>();
  // An exchange that nobody is left to make may have been promised: it is not over before that is
  // settled.
  for (const Open& open : open_proposals_) {
    if (Holds(open.first, after)) return std::optional<ReadResult>();
  }
  return std::optional<ReadResult>(ReadAfter(after));
}

absl::StatusOr<std::optional<SparseReadResult>> Shard::ReadSparse(MemberId member, Exchange after,
                                                                  const CoreName& core) {
  if (cores_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull from member ", member.value(), ": keys are sparse, want dense"));
  }
  absl::StatusOr<std::optional<ReadResult>> read = Read(member, after);
  if (!read.ok()) return read.status();
  if (!read->has_value()) return std::optional<SparseReadResult>();
  return std::optional<SparseReadResult>(
      {cores_->PlaceOfPull(*plan_.Find(member), after, core), **std::move(read)});
}

absl::StatusOr<std::optional<std::shared_ptr<const Core>>> Shard::ReadCore(MemberId member,
                                                                           uint64_t number) {
  if (cores_ == nullptr || !members_.contains(member)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "pull from member ", member.value(), ": ",
        cores_ == nullptr ? "the job's method has no core" : "not a member of the current plan"));
  }
  if (cores_->cores() <= number) return std::optional<std::shared_ptr<const Core>>();
  return std::make_optional(cores_->core());
}

absl::StatusOr<std::optional<SubnetReadResult>> Shard::ReadSubnet(MemberId member, Exchange round) {
  const auto where = [&] {
    return absl::StrCat("fetch from member ", member.value(), " round ", round.value());
  };
  if (!rounds_) {
    return absl::InvalidArgumentError(
        absl::StrCat(where(), ": the job's method trains no subnets, want a pull"));
  }
  const auto found = members_.find(member);
  if (found == members_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(where(), ": not a member of the current plan (generation ",
                     plan_.generation.value(), "); its lease has ended, or it never joined"));
  }
  // The open round or the next one; a joiner's first may be further away.
  const Exchange open = policy_->Collecting();
  if (round < open || round > std::max(open.Next(), found->second.first)) {
    return absl::FailedPreconditionError(
        absl::StrCat(where(), ": round ", open.value(), " is open, want that one or the next"));
  }
  absl::StatusOr<std::optional<ReadResult>> read = Read(member, Exchange(round.value() - 1));
  if (!read.ok()) return read.status();
  if (!read->has_value() || round != open) return std::optional<SubnetReadResult>();
  if (forms_ && forms_->IsWhole(round)) {
    return std::optional<SubnetReadResult>({nullptr, **std::move(read)});
  }
  OpenRound();
  std::shared_ptr<const SiteSubnet> site = rounds_->Of(member);
  if (site == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where(), ": not a site of that round, want ",
                                                      found->second.first.value(),
                                                      " or a later one"));
  }
  return std::optional<SubnetReadResult>({std::move(site), **std::move(read)});
}

ReadResult Shard::ReadNow() {
  return {store_.TakeSnapshot(),
          counters_.version,
          counters_.examples,
          cores_ == nullptr ? 0 : cores_->cores(),
          {},
          plan_.generation};
}

ShardCounters Shard::counters() const {
  ShardCounters counters = counters_;
  counters.collecting = policy_->Collecting();
  for (const auto& [id, member] : members_) counters.resting += member.rests_after.has_value();
  counters.copied_bytes_peak = store_.copied_bytes_peak();
  counters.blocks_allocated = store_.blocks_allocated();
  return counters;
}

uint64_t Shard::ParametersHash() const { return HashOf(store_, slices_); }

int64_t Shard::memory_bytes() const {
  if (rounds_) return slices_.bytes() * (whole_kind_ ? 2 : 1) + rounds_->memory_bytes();
  if (cores_ != nullptr) return slices_.bytes() + cores_->memory_bytes();
  return slices_.bytes() * (2 + static_cast<int64_t>(state_.size()));
}

}  // namespace tessera
