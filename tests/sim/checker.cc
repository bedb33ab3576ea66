#include "tests/sim/checker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/dice.h"

namespace tessera {

int64_t UpdateEntry(uint64_t seed, MemberId member, Exchange exchange, int64_t entry) {
  const uint64_t key = Scrambled(seed + (member.value() << 48) + (exchange.value() << 24) + entry);
  return 60 * (static_cast<int64_t>(key % 401) - 200);
}

// Forwards everything, and tells.
class Checker::RecordedPolicy final : public ConsistencyPolicy {
 public:
  RecordedPolicy(Checker* checker, CopyId copy, std::unique_ptr<ConsistencyPolicy> policy)
      : checker_(checker), copy_(copy), policy_(std::move(policy)) {}

  void SetMembers(const Plan& plan) override {
    // A standby hears of it through the log.
    checker_->OnPlan(copy_, plan);
    policy_->SetMembers(plan);
  }
  PolicyState State() override { return policy_->State(); }
  void SetState(const PolicyState& state) override {
    checker_->OnImage(copy_);
    policy_->SetState(state);
  }
  std::optional<MemberId> NextInOrder() const override { return policy_->NextInOrder(); }
  Verdict OnPush(const PushFacts& push) override {
    checker_->FollowSelection(copy_);
    const Verdict verdict = policy_->OnPush(push);
    checker_->OnFolded(copy_, push, verdict);
    return verdict;
  }
  std::optional<float> CommitDue(absl::Time now) override {
    checker_->FollowSelection(copy_);
    const Exchange exchange = policy_->Collecting();
    const std::optional<float> scale = policy_->CommitDue(now);
    if (scale.has_value()) checker_->OnCommitted(copy_, exchange);
    return scale;
  }
  bool MayRead(MemberId member, Exchange after) const override {
    return policy_->MayRead(member, after);
  }
  Exchange Collecting() const override { return policy_->Collecting(); }
  std::vector<MemberId> WaitsFor() const override { return policy_->WaitsFor(); }
  std::optional<absl::Time> Deadline() const override { return policy_->Deadline(); }
  void SetResting(MemberId member, bool resting) override {
    checker_->OnResting(copy_, member, resting);
    policy_->SetResting(member, resting);
  }
  Exchange FirstExchange(Exchange wanted) const override { return policy_->FirstExchange(wanted); }

 private:
  Checker* const checker_;
  const CopyId copy_;
  const std::unique_ptr<ConsistencyPolicy> policy_;
};

Checker::Checker(Options options)
    : options_(options),
      leaders_(options.shards),
      lead_terms_(options.shards),
      told_(options.shards),
      keys_(options.shards),
      numbers_(NumbersOf(options.shape)),
      shard_numbers_(options.shards),
      codecs_(options.codecs),
      seen_(options.shards) {}

std::unique_ptr<ConsistencyPolicy> Checker::Recorded(CopyId copy,
                                                     std::unique_ptr<ConsistencyPolicy> policy) {
  return std::make_unique<RecordedPolicy>(this, copy, std::move(policy));
}

void Checker::Violate(absl::string_view what) {
  if (!violation_.has_value() && !is_forgiven_) violation_ = std::string(what);
}

void Checker::OnPlan(CopyId copy, const Plan& plan) {
  Ledger& ledger = ledgers_[copy.value()];
  if (ledger.is_blank) {
    Violate(absl::StrCat("shard ", ShardOf(copy), ": generation ", plan.generation.value(),
                         " was told to a server that has nothing of what was there"));
  }
  if (!ledger.has_begun) {
    for (const PlanMember& m : plan.members) {
      ledger.round = std::max(ledger.round, m.first_exchange);
    }
    ledger.has_begun = !plan.members.empty();
  }
  if (plan.generation > ledger.plan.generation) ledger.plan = plan;
}

bool Checker::IsMember(CopyId copy, MemberId member) const {
  return ledgers_[copy.value()].plan.Find(member) != nullptr;
}

void Checker::OnAcceptedOfNone(CopyId copy, MemberId member) {
  Violate(
      absl::StrCat("shard ", ShardOf(copy), " accepted a push of removed member ", member.value()));
}

void Checker::OnFolded(CopyId copy, const PushFacts& push, const Verdict& verdict) {
  Ledger& ledger = ledgers_[copy.value()];
  const std::string where = absl::StrCat("shard ", ShardOf(copy), " member ", push.member.value(),
                                         " exchange ", push.exchange.value());
  const PlanMember* member = ledger.plan.Find(push.member);
  if (member == nullptr || push.exchange < member->first_exchange) {
    Violate(absl::StrCat(where, ": folded, but it is no member then"));
  }
  if (!ledger.applied.insert({push.member, push.exchange}).second) {
    Violate(absl::StrCat(where, ": folded twice"));
  }
  if (push.now.value() != ledger.version || push.base > push.now) {
    Violate(absl::StrCat(where, ": versions are out of step"));
  }
  float weight = options_.weight(ledger.version - push.base.value());
  if (options_.by_examples) {
    if (ledger.folded.empty()) ledger.first_examples = push.examples;
    weight = static_cast<float>(push.examples) / static_cast<float>(ledger.first_examples);
  }
  ledger.weights = ledger.folded.empty() ? weight : ledger.weights + weight;
  const uint64_t staleness = ledger.version - push.base.value();
  ++ledger.pushes;
  ledger.staleness_sum += staleness;
  ledger.staleness_max = std::max(ledger.staleness_max, staleness);
  ledger.pending_examples += push.examples;
  reached_.stale += staleness >= 2 ? 1 : 0;
  ledger.clocks[push.member] = push.exchange;
  ledger.highest = std::max(ledger.highest, push.exchange);
  if (options_.subnets != nullptr) {
    ReplaceValues(&ledger, push, where);
  } else {
    AddUpdate(&ledger, push, weight);
  }
  ledger.folded.push_back(push.member);
  if (verdict.commit) OnCommitted(copy, push.exchange);
}

void Checker::OnCommitted(CopyId copy, Exchange exchange) {
  Ledger& ledger = ledgers_[copy.value()];
  if (ledger.folded.empty()) {
    return Violate(absl::StrCat("shard ", ShardOf(copy), " committed nothing"));
  }
  if (options_.lockstep) {
    if (exchange <= ledger.committed) {
      Violate(absl::StrCat("shard ", ShardOf(copy), " committed exchange ", exchange.value(),
                           " after ", ledger.committed.value()));
    }
    ledger.commits[exchange] = {ledger.folded.begin(), ledger.folded.end()};
    ledger.committed = exchange;
  }
  for (const auto& [position, sum] : ledger.shared) {
    ledger.parameters[position] =
        static_cast<float>(sum / static_cast<double>(ledger.folded.size()));
  }
  ledger.shared.clear();
  const float count =
      static_cast<float>(options_.by_examples ? ledger.weights : ledger.folded.size());
  const float scale = options_.mean ? 1.0f / count : 1.0f;
  // In lockstep the last commit's alone, elsewhere of every push of all entries.
  if (ledger.has_all && options_.lockstep) ledger.gradient.clear();
  if (ledger.has_all) ledger.gradient.resize(ledger.pending.size());
  ledger.examples += std::exchange(ledger.pending_examples, 0);
  if (options_.momentum != 0) ledger.momentum.resize(ledger.pending.size());
  for (size_t i = 0; i < ledger.pending.size(); ++i) {
    const float mean = options_.factor * (scale * ledger.pending[i]);
    float change = mean;
    if (options_.momentum != 0) {
      float& m = ledger.momentum[i];
      m = options_.momentum * m + mean;
      change = options_.nesterov ? mean + options_.momentum * m : m;
    }
    ledger.parameters[i] += static_cast<float>(options_.sign) * change;
    if (ledger.has_all) ledger.gradient[i] += mean;
  }
  ledger.has_all = false;
  uint64_t hash = Scrambled(ledger.history.back() + 1);
  for (const MemberId member : ledger.folded) {
    hash = Scrambled(hash + (member.value() << 32) + ledger.clocks[member].value());
  }
  ledger.history.push_back(hash);
  ledger.folded.clear();
  ledger.round = std::max(ledger.round, ledger.highest).Next();
  ++ledger.version;
}

void Checker::OnCounted(CopyId copy, Version version) {
  if (version.value() != ledgers_[copy.value()].version) {
    Violate(absl::StrCat("shard ", ShardOf(copy), ": version is ", version.value(), ", want ",
                         ledgers_[copy.value()].version, " commits"));
  }
}

void Checker::OnRead(CopyId copy, MemberId member, Exchange after, Version version,
                     const std::vector<float>& values) {
  const std::string where = absl::StrCat("shard ", ShardOf(copy), " read by member ",
                                         member.value(), " after exchange ", after.value());
  CheckRead(copy, member, after, version, where);
  CompareValues(ledgers_[copy.value()], values, nullptr, where);
}

void Checker::OnFetched(CopyId copy, MemberId member, const SubnetPlace& place, Version version,
                        const std::optional<std::vector<float>>& values) {
  const Ledger& ledger = ledgers_[copy.value()];
  const std::string where = absl::StrCat("shard ", ShardOf(copy), " fetch of round ", place.round,
                                         " by member ", member.value());
  CheckRead(copy, member, Exchange(place.round - 1), version, where);
  std::map<MemberId, SubnetPlace>& cut = cuts_[{ledger.era, place.round}];
  for (const auto& [other, theirs] : cut) {
    const bool is_same = other == member
                             ? theirs == place
                             : theirs.shares == place.shares && theirs.site != place.site;
    if (is_same && theirs.seed == place.seed) continue;
    Violate(absl::StrCat(where, ": site ", place.site, " of ", place.sites(), ", but member ",
                         other.value(), " is site ", theirs.site, " of ", theirs.sites(),
                         ": the round is cut in two ways"));
  }
  if (cut.empty() && !options_.subnets->IsPartition(place)) {
    Violate(absl::StrCat(where, ": its ", place.sites(), " parts do not make up the model"));
  }
  cut.emplace(member, place);
  if (!values.has_value()) return;
  std::vector<int64_t> positions;
  for (const SubnetEntries::Entry& entry : options_.subnets->OnServer(place, ledger.slices)) {
    positions.push_back(entry.position);
  }
  CompareValues(ledger, *values, &positions, where);
}

bool Checker::IsInRound(CopyId copy) const {
  const Ledger& ledger = ledgers_[copy.value()];
  return std::any_of(ledger.folded.begin(), ledger.folded.end(), [&](MemberId member) {
    const Exchange round = ledger.clocks.at(member);
    return ledger.applied.count({member, Exchange(round.value() - 1)}) > 0;
  });
}

// Called before anything is folded or committed: one selection may replace another that nobody has heard of.
void Checker::FollowSelection(CopyId copy) {
  Ledger& ledger = ledgers_[copy.value()];
  const CoreExchange* const cores = ledger.copy == nullptr ? nullptr : ledger.copy->cores();
  if (cores == nullptr) return;
  const std::optional<uint64_t> selecting = cores->selecting();
  if (!selecting && cores->cores() == 0) return;
  // One that has begun and ended since was of the same values.
  const uint64_t number = selecting ? *selecting : cores->cores() - 1;
  if (ledger.selecting && *ledger.selecting >= number) return;
  // One between, of which a standby heard at once with this one, has taken the changes.
  if (ledger.selecting &&
      CoresOf(ledger.era).HasSelectedBetween(ledger.shard, *ledger.selecting, number)) {
    ledger.gradient.clear();
  }
  ledger.selecting = number;
  ledger.selected_values = ledger.parameters;
  ledger.selected_gradient = std::exchange(ledger.gradient, {});
  // One that was given up and does not know it selects of other values, and nobody goes by them.
  const std::optional<CopyId> leader = leaders_[ledger.shard.value()];
  if (!ledger.leads || (leader && *leader != copy)) return;
  CoresOf(ledger.era)
      .OnSelection(ledger.shard, number, ledger.selected_values, ledger.selected_gradient);
}

void Checker::OnCore(CopyId copy, const Core& core) {
  const std::string where = absl::StrCat("shard ", ShardOf(copy), " core ", core.name.number);
  const Ledger& ledger = ledgers_[copy.value()];
  const std::optional<std::vector<int64_t>> want =
      CoresOf(ledger.era).CoreOn(ledger.shard, core.name.number);
  if (!want) return Violate(absl::StrCat(where, ": selected before all shards had begun to"));
  if (core.keys.places() != *want) {
    Violate(absl::StrCat(where, ": not the entries of the largest significance"));
  }
}

void Checker::CheckEntries(Generation era, ShardId shard, Rank rank, Exchange exchange,
                           uint64_t core, const EntrySet& entries, absl::string_view where) {
  const std::optional<std::vector<int64_t>> keys = CoresOf(era).CoreOn(shard, core);
  if (!keys) return Violate(absl::StrCat(where, ": core ", core, " is selected nowhere"));
  if (entries.places() != CoresOf(era).EntriesOn(shard, rank, exchange, *keys)) {
    Violate(absl::StrCat(where, ": entries are not those of core ", core, " and the explorer"));
  }
}

void Checker::OnKeys(ShardId shard, MemberId member, Rank rank, Exchange exchange,
                     const SparseKeys* keys, bool is_last) {
  const std::string where = absl::StrCat("shard ", shard.value(), " push of member ",
                                         member.value(), " exchange ", exchange.value());
  std::optional<std::vector<int64_t>>& sent = keys_[shard.value()][{member, exchange}];
  if ((is_last || PushesAll(*options_.core, exchange.value())) == (keys != nullptr)) {
    Violate(absl::StrCat(where, ": every ", options_.core->every, "th is of all entries"));
  }
  if (keys == nullptr) return;
  CheckEntries(EraOf(member), shard, rank, exchange, keys->core->name.number, keys->entries, where);
  sent = keys->entries.places();
}

void Checker::OnSparseRead(CopyId copy, MemberId member, Rank rank, Exchange after, Version version,
                           uint64_t core, const EntrySet& entries,
                           const std::vector<float>& values) {
  const std::string where = absl::StrCat("shard ", ShardOf(copy), " read by member ",
                                         member.value(), " after exchange ", after.value());
  CheckRead(copy, member, after, version, where);
  const Ledger& ledger = ledgers_[copy.value()];
  CheckEntries(ledger.era, ledger.shard, rank, after, core, entries, where);
  const std::vector<int64_t> places = entries.places();
  CompareValues(ledger, values, &places, where);
}

void Checker::OnReadOutside(CopyId copy, MemberId member, Version version,
                            const std::vector<float>& values) {
  OnCounted(copy, version);
  CompareValues(
      ledgers_[copy.value()], values, nullptr,
      absl::StrCat("shard ", ShardOf(copy), " read at an evaluation by member ", member.value()));
}

bool Checker::IsRogue(MemberId member) const {
  const auto life = lives_.find(member);
  return life != lives_.end() && life->second >= kFirstRogueLife;
}

void Checker::CheckRead(CopyId copy, MemberId member, Exchange after, Version version,
                        absl::string_view where) {
  const Ledger& ledger = ledgers_[copy.value()];
  OnCounted(copy, version);
  // A rogue may say that it is after any exchange: what it then gets harms nobody else.
  if (IsRogue(member)) return;
  if (options_.lockstep && after != Exchange(0) && after != ledger.committed) {
    const PlanMember* reader = ledger.plan.Find(member);
    // A joiner may be the first after all others have gone: what was last committed is then older.
    const bool skipped =
        reader != nullptr && reader->first_exchange == after.Next() && ledger.committed < after;
    // An old request that was long on its way: its client has what it wanted and has pushed since.
    const bool belated = ledger.applied.count({member, after.Next()}) > 0;
    if (!skipped && !belated) {
      Violate(absl::StrCat(where, ": contains exchange ", ledger.committed.value()));
    }
  }
  if (options_.bound) CheckGap(copy, member, after);
  if (options_.rounds && after >= ledger.round && ledger.clocks.count(member) > 0) {
    Violate(absl::StrCat(where, ": round ", ledger.round.value(), " is open"));
  }
  if (!options_.lockstep && ledger.applied.count({member, after}) == 0) {
    const PlanMember* reader = ledger.plan.Find(member);
    if (reader != nullptr && after >= reader->first_exchange) {
      Violate(absl::StrCat(where, ": the reader's own push is missing"));
    }
  }
}

void Checker::CompareValues(const Ledger& ledger, const std::vector<float>& values,
                            const std::vector<int64_t>* wanted, absl::string_view where) {
  const size_t size = wanted == nullptr ? ledger.parameters.size() : wanted->size();
  if (values.size() != size) return Violate(absl::StrCat(where, ": wrong size"));
  for (size_t i = 0; i < values.size(); ++i) {
    const float want = ledger.parameters[wanted == nullptr ? i : (*wanted)[i]];
    if (std::abs(values[i] - want) <= options_.tolerance * std::max(1000.0f, std::abs(values[i]))) {
      continue;
    }
    return Violate(absl::StrCat(where, ": entry ", i, " is ", values[i], ", want ", want,
                                " by the updates folded"));
  }
}

void Checker::OnResting(CopyId copy, MemberId member, bool resting) {
  std::set<MemberId>& all = ledgers_[copy.value()].resting;
  if (resting) {
    all.insert(member);
  } else {
    all.erase(member);
  }
}

void Checker::CheckGap(CopyId copy, MemberId reader, Exchange after) {
  const Ledger& ledger = ledgers_[copy.value()];
  for (const PlanMember& m : ledger.plan.members) {
    if (ledger.resting.count(m.member) > 0) continue;
    const auto folded = ledger.clocks.find(m.member);
    const uint64_t clock =
        folded != ledger.clocks.end() ? folded->second.value() : m.first_exchange.value() - 1;
    if (after.value() <= clock + *options_.bound) continue;
    Violate(absl::StrCat("shard ", ShardOf(copy), " read by member ", reader.value(),
                         ": its gap to member ", m.member.value(), " is ", after.value() - clock,
                         ", want at most ", *options_.bound));
  }
}

void Checker::OnReplica(MemberId member, Exchange exchange, const std::vector<float>& values) {
  // What is not exchanged is a replica's own.
  if (!options_.lockstep || options_.core) return;
  const auto [found, is_new] = replicas_.emplace(std::make_pair(EraOf(member), exchange), values);
  if (!is_new && found->second != values) {
    Violate(absl::StrCat("member ", member.value(), ": its replica after exchange ",
                         exchange.value(), " differs from another worker's"));
  }
}

void Checker::OnWaiting(CopyId copy, const std::vector<Reader>& readers,
                        const std::vector<MemberId>& waits_for, bool will_go_on) {
  const Ledger& ledger = ledgers_[copy.value()];
  for (const MemberId member : waits_for) {
    if (ledger.plan.Find(member) == nullptr) {
      Violate(absl::StrCat("shard ", ShardOf(copy), " waits for ", member.value(),
                           ", which is no member"));
    }
  }
  const bool may_wait = options_.lockstep || options_.bound || options_.rounds;
  if (will_go_on || !waits_for.empty() || !may_wait) return;
  for (const Reader& reader : readers) {
    const PlanMember* member = ledger.plan.Find(reader.member);
    if (member == nullptr) continue;
    // Its own push is still on its way.
    const auto clock = ledger.clocks.find(reader.member);
    const Exchange folded = clock == ledger.clocks.end() ? Exchange(0) : clock->second;
    if (reader.after >= member->first_exchange && folded < reader.after) continue;
    Violate(absl::StrCat("shard ", ShardOf(copy), ": member ", reader.member.value(),
                         " waits for nobody"));
  }
}

void Checker::OnAdmitted(MemberId member, Exchange first, Generation generation) {
  const auto later = restores_.upper_bound(generation);
  const Generation era = later == restores_.begin() ? Generation() : std::prev(later)->first;
  eras_[member] = era;
  for (size_t shard = 0; shard < leaders_.size(); ++shard) {
    const Ledger* const ledger = LeaderOf(shard);
    // A standby that is to lead is told before it takes requests. The job may have gone back again.
    if (ledger == nullptr || !ledger->serves || ledger->era > era) continue;
    const PlanMember* planned = ledger->plan.Find(member);
    // It may have been removed there already.
    if (planned == nullptr && ledger->plan.generation == Generation(0)) {
      Violate(absl::StrCat("member ", member.value(), " was admitted before shard ", shard,
                           " had a plan"));
    }
    if (planned != nullptr && planned->first_exchange != first) {
      Violate(absl::StrCat("member ", member.value(), " begins with exchange ", first.value(),
                           ", shard ", shard, " expects ", planned->first_exchange.value()));
    }
    if (planned != nullptr && options_.lockstep && ledger->committed >= first) {
      Violate(absl::StrCat("member ", member.value(), " begins with exchange ", first.value(),
                           ", which shard ", shard, " has committed"));
    }
  }
}

void Checker::OnLiveMemberRefused(MemberId member, absl::string_view message) {
  Violate(absl::StrCat("live member ", member.value(), " was refused: ", message));
}

}  // namespace tessera
