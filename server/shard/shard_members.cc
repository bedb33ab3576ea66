#include "server/shard/shard_members.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace tessera {

ShardMember* ShardMembers::Find(MemberId member) {
  const auto found = states_.find(member);
  return found == states_.end() ? nullptr : &found->second;
}

// A worker's numbers grow one by one, and every server hears all of them. One that is far ahead is none of its: it
// would have all of the worker's own words be old ones.
bool ShardMembers::IsFarAhead(const ShardMember& member, IdleNotice word) {
  return member.rest_number > 0 && word.number > member.rest_number + kRestsAheadMax;
}

absl::Status ShardMembers::NotMember(absl::string_view where) const {
  const absl::string_view colon = where.empty() ? "" : ": ";
  // The first plan is still on its way: the sender may be a member of it.
  if (is_replica_ && plan_.generation == Generation()) {
    return absl::UnavailableError(absl::StrCat(where, colon, "the server has just begun"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(where, colon, "not a member of the current plan (generation ",
                   plan_.generation.value(), "); its lease has ended, or it never joined"));
}

std::vector<RemovedMember> ShardMembers::SetPlan(const Plan& plan) {
  std::vector<RemovedMember> removed;
  absl::flat_hash_set<MemberId> stay;
  for (const PlanMember& m : plan.members) stay.insert(m.member);
  for (const PlanMember& m : plan_.members) {
    if (stay.contains(m.member)) continue;
    const ShardMember& state = states_[m.member];
    // A replica's removed member may have pushes at others that are not here yet; what is accepted counts.
    removed.push_back({m.member, is_replica_ ? state.accepted : state.folded});
    if (is_replica_) SetDepartedFolded(m.member, state.folded);
    states_.erase(m.member);
  }
  removed_.insert(removed_.end(), removed.begin(), removed.end());
  // An acknowledgement that got lost is sent again with all of them; older removals have long been heard of.
  while (removed_.size() > kRemovedMax) removed_.pop_front();
  for (const PlanMember& m : plan.members) {
    if (states_.contains(m.member)) continue;
    // A new member counts as having made the exchange before its first one.
    const Exchange before(m.first_exchange.value() - 1);
    states_[m.member] = {m.first_exchange, before, before};
    // A plan with somebody new settles what was promised: one member is added at a time.
    proposals_.clear();
  }
  plan_ = plan;
  policy_.SetMembers(plan);
  return removed;
}

void ShardMembers::Withdraw(uint64_t proposal) {
  // Proposals are numbered in order: a withdrawn one takes all older ones with it.
  proposals_.erase(
      std::remove_if(proposals_.begin(), proposals_.end(),
                     [&](const ProposeEvent& open) { return open.proposal <= proposal; }),
      proposals_.end());
}

// A push is a word by itself: whoever makes one has gone on, even if the notice that says so is still on its way.
void ShardMembers::OnAccepted(MemberId id, Exchange exchange, ShardMember* member) {
  member->accepted = exchange;
  if (!member->heard_from.has_value()) member->heard_from = exchange;
  if (member->rests_after && *member->rests_after < exchange) Wake(id, member);
}

void ShardMembers::RestIfDue(MemberId id, const ShardMember& member) {
  // The rest begins once the last push that the member made before it is folded.
  if (member.rests_after == member.folded) policy_.SetResting(id, true);
}

void ShardMembers::Rest(MemberId id, Exchange after, IdleNotice word) {
  ShardMember* const member = Find(id);
  if (member == nullptr) return;
  // Words of one number come in the order rest, end of rest; repeated ones may come at any time.
  const bool is_new = word.rests ? word.number > member->rest_number
                                 : word.number >= member->rest_number && word.number > 0;
  if (!is_new || IsFarAhead(*member, word)) return;
  member->rest_number = word.number;
  if (!word.rests) {
    if (member->rests_after) Wake(id, member);
    return;
  }
  member->rests_after = after;
  RestIfDue(id, *member);
}

void ShardMembers::Wake(MemberId id, ShardMember* member) {
  member->rests_after.reset();
  policy_.SetResting(id, false);
}

std::map<MemberId, Exchange> ShardMembers::Folded() const {
  // Members that have left are in the table, too, as copies must contain their pushes.
  std::map<MemberId, Exchange> folded = departed_;
  for (const auto& [id, member] : states_) folded[id] = member.folded;
  return folded;
}

void ShardMembers::SetDepartedFolded(MemberId member, Exchange folded) {
  departed_[member] = folded;
  // The lowest numbers joined first, and nobody can still send a push of theirs.
  if (departed_.size() > kDepartedMax) departed_.erase(departed_.begin());
}

void ShardMembers::TakeImage(ImageEvent* image) const {
  image->plan = plan_;
  for (const auto& [id, member] : states_) {
    image->members.push_back({id, member.folded, member.rests_after, member.rest_number});
  }
  // Sorted, so that the image's bytes do not depend on a hash table.
  std::sort(image->members.begin(), image->members.end(),
            [](const auto& a, const auto& b) { return a.member < b.member; });
  image->proposals = proposals_;
  image->removed.assign(removed_.begin(), removed_.end());
}

void ShardMembers::SetImage(const ImageEvent& image) {
  for (const ImageEvent::Member& m : image.members) {
    ShardMember& member = states_[m.member];
    member.accepted = m.folded;
    member.folded = m.folded;
    member.heard_from = m.folded;
    member.rests_after = m.rests_after;
    member.rest_number = m.rest_number;
    RestIfDue(m.member, member);
  }
  proposals_.insert(proposals_.end(), image.proposals.begin(), image.proposals.end());
  removed_.assign(image.removed.begin(), image.removed.end());
}

}  // namespace tessera
