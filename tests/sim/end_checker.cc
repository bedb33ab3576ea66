// What must be true of a job that has ended, and what it comes to.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/shard/log/shard_recorder.h"
#include "tests/sim/checker.h"

namespace tessera {

void Checker::CheckSameCommits(const std::set<MemberId>& lost) {
  for (size_t a = 0; a < leaders_.size(); ++a) {
    for (const auto& [exchange, members] : LeaderOf(a)->commits) {
      for (size_t b = 0; b < leaders_.size(); ++b) {
        const auto other = LeaderOf(b)->commits.find(exchange);
        for (const MemberId member : members) {
          if (lost.count(member) > 0) continue;
          if (other != LeaderOf(b)->commits.end() && other->second.count(member) > 0) continue;
          Violate(absl::StrCat("exchange ", exchange.value(), ": shard ", a, " counted member ",
                               member.value(), ", shard ", b, " did not, and it was not lost"));
        }
      }
    }
  }
}

uint64_t Checker::partial_pushes() const {
  std::map<MemberId, std::vector<Exchange>> last_by_shard;
  for (size_t shard = 0; shard < leaders_.size(); ++shard) {
    if (LeaderOf(shard) == nullptr) continue;
    for (const auto& [member, exchange] : LeaderOf(shard)->applied) {
      std::vector<Exchange>& exchanges = last_by_shard[member];
      exchanges.resize(leaders_.size());
      exchanges[shard] = std::max(exchanges[shard], exchange);
    }
  }
  uint64_t partial = 0;
  for (const auto& [member, exchanges] : last_by_shard) {
    const Exchange first = exchanges[0];
    partial +=
        std::any_of(exchanges.begin(), exchanges.end(), [first](Exchange e) { return e != first; });
  }
  return partial;
}

uint64_t Checker::commits() const {
  uint64_t commits = 0;
  for (size_t shard = 0; shard < leaders_.size(); ++shard) {
    if (LeaderOf(shard) != nullptr) commits += LeaderOf(shard)->version;
  }
  return commits;
}

void Checker::OnCounters(CopyId copy, const v1::ServerCounters& counters) {
  const Ledger& ledger = ledgers_[copy.value()];
  const auto compare = [&](const char* what, uint64_t is, uint64_t want) {
    if (is == want) return;
    Violate(absl::StrCat("shard ", ShardOf(copy), " counts ", is, " ", what, ", want ", want));
  };
  compare("versions", counters.version(), ledger.version);
  // Those of removed members, too, that were never folded.
  const uint64_t accepted = ledger.pushes + ShardRecorder::StagedPushesOf(*ledger.copy).size();
  compare("pushes", std::max(counters.pushes(), accepted), counters.pushes());
  compare("versions late in all", counters.staleness_sum(), ledger.staleness_sum);
  compare("versions late at most", counters.staleness_max(), ledger.staleness_max);
  compare("examples", counters.examples(), ledger.examples);
}

bool Checker::HasPushed(MemberId member) const {
  for (size_t shard = 0; shard < leaders_.size(); ++shard) {
    if (LeaderOf(shard) == nullptr) continue;
    const auto& applied = LeaderOf(shard)->applied;
    const auto first = applied.lower_bound({member, Exchange()});
    if (first != applied.end() && first->first == member) return true;
  }
  return false;
}

void Checker::OnEnd(const std::set<MemberId>& lost, std::optional<uint64_t> counted,
                    bool is_drained) {
  if (options_.lockstep) CheckSameCommits(lost);
  CheckFinished(is_drained);
  for (size_t shard = 0; shard < leaders_.size(); ++shard) {
    // In lockstep some may begin with an exchange that the others do not make.
    if (!options_.lockstep && !LeaderOf(shard)->folded.empty()) {
      Violate(absl::StrCat("shard ", shard, ": ", LeaderOf(shard)->folded.size(),
                           " pushes were folded and never committed"));
    }
    for (const auto& [member, exchange] : told_[shard].acknowledged) {
      if (lost.count(member) > 0 || LeaderOf(shard)->applied.count({member, exchange}) > 0) {
        continue;
      }
      Violate(absl::StrCat("shard ", shard, ": exchange ", exchange.value(), " of member ",
                           member.value(), " was acknowledged, and is not in the parameters"));
    }
  }
  if (counted && *counted != partial_pushes()) {
    Violate(absl::StrCat("partial pushes are ", *counted, " by the coordinator, want ",
                         partial_pushes()));
  }
}

}  // namespace tessera
