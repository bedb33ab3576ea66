// Shard: who may push, as the coordinator's plans say, and what was promised to those who come.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "server/shard/shard.h"

namespace tessera {

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
  }
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
  return removed;
}

Exchange Shard::Propose(uint64_t proposal, Exchange first) {
  if (rounds_) {
    // The open round may be folded in part, and its end opens the next one.
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
                                       [&](const Open& open) { return open.proposal == proposal; }),
                        open_proposals_.end());
}

std::vector<MemberId> Shard::WaitsFor() const {
  std::vector<MemberId> missing = policy_->WaitsFor();
  missing.erase(std::remove_if(missing.begin(), missing.end(),
                               [&](MemberId member) {
                                 return std::any_of(
                                     staged_.begin(), staged_.end(),
                                     [&](const Staged& s) { return s.member == member; });
                               }),
                missing.end());
  return missing;
}

}  // namespace tessera
