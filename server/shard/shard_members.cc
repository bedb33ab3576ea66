// The shard's members: who is counted from which exchange on, who rests, whose pushes have a place.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "server/shard/shard.h"

namespace tessera {

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

// Of the bytes that are reserved or staged, those in the place that the next in order has of its own.
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

}  // namespace tessera
