#include "tests/sim/checker.h"

#include <algorithm>
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
  RecordedPolicy(Checker* checker, ShardId shard, std::unique_ptr<ConsistencyPolicy> policy)
      : checker_(checker), shard_(shard), policy_(std::move(policy)) {}

  void SetMembers(const Plan& plan) override { policy_->SetMembers(plan); }
  std::optional<MemberId> NextInOrder() const override { return policy_->NextInOrder(); }
  Verdict OnPush(const PushFacts& push) override {
    const Verdict verdict = policy_->OnPush(push);
    checker_->OnFolded(shard_, push, verdict);
    return verdict;
  }
  std::optional<float> CommitDue() override {
    const Exchange exchange = policy_->Collecting();
    const std::optional<float> scale = policy_->CommitDue();
    if (scale.has_value()) checker_->OnCommitted(shard_, exchange);
    return scale;
  }
  bool MayRead(MemberId member, Exchange after) const override {
    return policy_->MayRead(member, after);
  }
  Exchange Collecting() const override { return policy_->Collecting(); }
  std::vector<MemberId> WaitsFor() const override { return policy_->WaitsFor(); }

 private:
  Checker* const checker_;
  const ShardId shard_;
  const std::unique_ptr<ConsistencyPolicy> policy_;
};

Checker::Checker(Options options) : options_(options), ledgers_(options.shards) {}

std::unique_ptr<ConsistencyPolicy> Checker::Recorded(ShardId shard, const ShardSlices& slices,
                                                     std::unique_ptr<ConsistencyPolicy> policy) {
  Ledger& ledger = ledgers_[shard.value()];
  ledger.slices = slices;
  ledger.parameters.assign(slices.size, 0);
  ledger.pending.assign(slices.size, 0);
  return std::make_unique<RecordedPolicy>(this, shard, std::move(policy));
}

void Checker::Violate(absl::string_view what) {
  if (!violation_.has_value()) violation_ = std::string(what);
}

void Checker::OnPlan(ShardId shard, const Plan& plan) {
  Ledger& ledger = ledgers_[shard.value()];
  if (plan.generation > ledger.plan.generation) ledger.plan = plan;
}

void Checker::OnAccepted(ShardId shard, MemberId member) {
  const Ledger& ledger = ledgers_[shard.value()];
  if (ledger.plan.Find(member) == nullptr) {
    Violate(absl::StrCat("shard ", shard.value(), " accepted a push of removed member ",
                         member.value()));
  }
}

void Checker::OnFolded(ShardId shard, const PushFacts& push, const Verdict& verdict) {
  Ledger& ledger = ledgers_[shard.value()];
  const std::string where = absl::StrCat("shard ", shard.value(), " member ", push.member.value(),
                                         " exchange ", push.exchange.value());
  const PlanMember* member = ledger.plan.Find(push.member);
  if (member == nullptr || push.exchange < member->first_exchange) {
    Violate(absl::StrCat(where, ": folded, but it is no member then"));
  }
  if (!ledger.applied.insert({push.member, push.exchange}).second)
    Violate(absl::StrCat(where, ": folded twice"));
  if (push.now.value() != ledger.version || push.base > push.now) {
    Violate(absl::StrCat(where, ": versions are out of step"));
  }
  int64_t at = 0;
  for (const Slice& slice : ledger.slices.slices) {
    // One parameter: entries are numbered over the whole of it.
    for (int64_t entry = slice.row_begin * slice.columns; entry < slice.row_end * slice.columns;
         ++entry) {
      ledger.pending[at++] += UpdateEntry(options_.seed, push.member, push.exchange, entry);
    }
  }
  ledger.folded.push_back(push.member);
  if (verdict.commit) OnCommitted(shard, push.exchange);
}

void Checker::OnCommitted(ShardId shard, Exchange exchange) {
  Ledger& ledger = ledgers_[shard.value()];
  if (ledger.folded.empty())
    return Violate(absl::StrCat("shard ", shard.value(), " committed nothing"));
  if (options_.lockstep) {
    if (exchange <= ledger.committed) {
      Violate(absl::StrCat("shard ", shard.value(), " committed exchange ", exchange.value(),
                           " after ", ledger.committed.value()));
    }
    ledger.commits[exchange] = {ledger.folded.begin(), ledger.folded.end()};
    ledger.committed = exchange;
  }
  const float scale = 1.0f / static_cast<float>(ledger.folded.size());
  for (size_t i = 0; i < ledger.pending.size(); ++i) {
    const float mean = scale * static_cast<float>(ledger.pending[i]);
    ledger.parameters[i] += static_cast<float>(options_.sign) * mean;
    ledger.pending[i] = 0;
  }
  ledger.folded.clear();
  ++ledger.version;
}

void Checker::OnCounted(ShardId shard, Version version) {
  if (version.value() != ledgers_[shard.value()].version) {
    Violate(absl::StrCat("shard ", shard.value(), ": version is ", version.value(), ", want ",
                         ledgers_[shard.value()].version, " commits"));
  }
}

void Checker::OnRead(ShardId shard, MemberId member, Exchange after, Version version,
                     const std::vector<float>& values) {
  const Ledger& ledger = ledgers_[shard.value()];
  const std::string where = absl::StrCat("shard ", shard.value(), " read by member ",
                                         member.value(), " after exchange ", after.value());
  OnCounted(shard, version);
  if (options_.lockstep && after != Exchange(0) && after != ledger.committed) {
    const PlanMember* reader = ledger.plan.Find(member);
    // A joiner may be the first after all others have gone: what was last committed is then older.
    const bool skipped =
        reader != nullptr && reader->first_exchange == after.Next() && ledger.committed < after;
    // An old request that was long on its way: its client has what it wanted and has pushed since.
    const bool belated = ledger.applied.count({member, after.Next()}) > 0;
    if (!skipped && !belated)
      Violate(absl::StrCat(where, ": contains exchange ", ledger.committed.value()));
  }
  if (!options_.lockstep && ledger.applied.count({member, after}) == 0) {
    const PlanMember* reader = ledger.plan.Find(member);
    if (reader != nullptr && after >= reader->first_exchange) {
      Violate(absl::StrCat(where, ": the reader's own push is missing"));
    }
  }
  if (values.size() != ledger.parameters.size())
    return Violate(absl::StrCat(where, ": wrong size"));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == ledger.parameters[i]) continue;
    return Violate(absl::StrCat(where, ": entry ", i, " is ", values[i], ", want ",
                                ledger.parameters[i], " by the updates folded"));
  }
}

void Checker::OnReplica(MemberId member, Exchange exchange, const std::vector<float>& values) {
  if (!options_.lockstep) return;
  const auto [found, is_new] = replicas_.emplace(exchange, values);
  if (!is_new && found->second != values) {
    Violate(absl::StrCat("member ", member.value(), ": its replica after exchange ",
                         exchange.value(), " differs from another worker's"));
  }
}

void Checker::OnWaiting(ShardId shard, const std::vector<MemberId>& readers,
                        const std::vector<MemberId>& waits_for, bool holds_promise) {
  const Ledger& ledger = ledgers_[shard.value()];
  for (const MemberId member : waits_for) {
    if (ledger.plan.Find(member) == nullptr) {
      Violate(absl::StrCat("shard ", shard.value(), " waits for ", member.value(),
                           ", which is no member"));
    }
  }
  if (readers.empty() || holds_promise || !waits_for.empty() || !options_.lockstep) return;
  Violate(absl::StrCat("shard ", shard.value(), ": member ", readers.front().value(),
                       " waits for nobody"));
}

void Checker::OnAdmitted(MemberId member, Exchange first) {
  for (size_t shard = 0; shard < ledgers_.size(); ++shard) {
    const PlanMember* planned = ledgers_[shard].plan.Find(member);
    // It may have been removed there already.
    if (planned == nullptr && ledgers_[shard].plan.generation == Generation(0)) {
      Violate(absl::StrCat("member ", member.value(), " was admitted before shard ", shard,
                           " had a plan"));
    }
    if (planned != nullptr && planned->first_exchange != first) {
      Violate(absl::StrCat("member ", member.value(), " begins with exchange ", first.value(),
                           ", shard ", shard, " expects ", planned->first_exchange.value()));
    }
    if (planned != nullptr && options_.lockstep && ledgers_[shard].committed >= first) {
      Violate(absl::StrCat("member ", member.value(), " begins with exchange ", first.value(),
                           ", which shard ", shard, " has committed"));
    }
  }
}

void Checker::OnLiveMemberRefused(MemberId member, absl::string_view message) {
  Violate(absl::StrCat("live member ", member.value(), " was refused: ", message));
}

void Checker::CheckSameCommits(const std::set<MemberId>& lost) {
  for (size_t a = 0; a < ledgers_.size(); ++a) {
    for (const auto& [exchange, members] : ledgers_[a].commits) {
      for (size_t b = 0; b < ledgers_.size(); ++b) {
        const auto other = ledgers_[b].commits.find(exchange);
        for (const MemberId member : members) {
          if (lost.count(member) > 0) continue;
          if (other != ledgers_[b].commits.end() && other->second.count(member) > 0) continue;
          Violate(absl::StrCat("exchange ", exchange.value(), ": shard ", a, " counted member ",
                               member.value(), ", shard ", b, " did not, and it was not lost"));
        }
      }
    }
  }
}

uint64_t Checker::partial_pushes() const {
  std::map<MemberId, std::vector<Exchange>> last_by_shard;
  for (size_t shard = 0; shard < ledgers_.size(); ++shard) {
    for (const auto& [member, exchange] : ledgers_[shard].applied) {
      std::vector<Exchange>& exchanges = last_by_shard[member];
      exchanges.resize(ledgers_.size());
      exchanges[shard] = std::max(exchanges[shard], exchange);
    }
  }
  uint64_t partial = 0;
  for (const auto& [member, exchanges] : last_by_shard) {
    partial += std::any_of(exchanges.begin(), exchanges.end(),
                           [&](Exchange e) { return e != exchanges[0]; });
  }
  return partial;
}

uint64_t Checker::commits() const {
  uint64_t commits = 0;
  for (const Ledger& ledger : ledgers_) commits += ledger.version;
  return commits;
}

void Checker::OnEnd(const std::set<MemberId>& lost, uint64_t counted) {
  if (options_.lockstep) CheckSameCommits(lost);
  if (counted != partial_pushes()) {
    Violate(absl::StrCat("partial pushes are ", counted, " by the coordinator, want ",
                         partial_pushes()));
  }
}

}  // namespace tessera
