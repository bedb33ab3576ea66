#include "common/consistency/adaptive_grace.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "common/base/check.h"

namespace tessera {
namespace {

// Clocks and saved states have no parts of nanoseconds.
absl::Duration InNanos(absl::Duration time) { return absl::Trunc(time, absl::Nanoseconds(1)); }

}  // namespace

AdaptiveGrace::AdaptiveGrace(int64_t pushes, absl::Duration most, double share)
    : pushes_(pushes), most_(most), share_(share) {
  TESSERA_CHECK(pushes >= 1 && most >= absl::ZeroDuration() && share > 0);
}

void AdaptiveGrace::SetMembers(const Plan& plan) {
  for (auto it = members_.begin(); it != members_.end();) {
    it = plan.Find(it->first) == nullptr ? members_.erase(it) : std::next(it);
  }
}

void AdaptiveGrace::OnRest(MemberId member) {
  const auto found = members_.find(member);
  if (found == members_.end()) return;
  found->second.begins.reset();
  found->second.waits = false;
}

void AdaptiveGrace::OnPush(MemberId id, bool goes_on, absl::Time now) {
  Member& member = members_[id];
  if (member.begins.has_value()) {
    const absl::Duration took = now - *member.begins;
    const bool is_first = member.time == absl::ZeroDuration();
    // One that was held up once is not a slow one.
    member.time =
        is_first ? took : InNanos((3 * member.time + std::min(took, 2 * member.time)) / 4);
  }
  member.begins.reset();
  if (goes_on) member.begins = now;
  member.waits = !goes_on;
}

void AdaptiveGrace::OnQuorum(absl::Time now) {
  quorum_ = now;
  std::vector<absl::Duration> times;
  for (const auto& [id, member] : members_) {
    if (member.time > absl::ZeroDuration()) times.push_back(member.time);
  }
  pace_ = absl::ZeroDuration();
  if (static_cast<int64_t>(times.size()) < pushes_) return;
  std::nth_element(times.begin(), times.begin() + (pushes_ - 1), times.end());
  pace_ = times[pushes_ - 1];
}

void AdaptiveGrace::OnClose(absl::Time now) {
  for (auto& [id, member] : members_) {
    if (!member.waits) continue;
    member.waits = false;
    member.begins = now;
  }
}

absl::Time AdaptiveGrace::WaitsUntil(MemberId id) const {
  const absl::Time most = most_ > absl::ZeroDuration() ? quorum_ + most_ : absl::InfiniteFuture();
  if (pace_ == absl::ZeroDuration()) return most;
  const absl::Time bound = std::min(most, quorum_ + InNanos(share_ * pace_));
  const auto found = members_.find(id);
  if (found == members_.end()) return bound;
  const Member& member = found->second;
  const absl::Duration longest = InNanos((1 + share_) * pace_);
  if (member.time > longest) return quorum_;
  return member.begins ? std::min(bound, *member.begins + longest) : bound;
}

void AdaptiveGrace::Save(PolicyState* state) {
  for (auto& [id, member] : members_) {
    state->members[id] = static_cast<uint64_t>(absl::ToInt64Nanoseconds(member.time));
    member.begins.reset();
  }
}

void AdaptiveGrace::Load(const PolicyState& state) {
  for (const auto& [id, time] : state.members) {
    members_[id].time = absl::Nanoseconds(static_cast<int64_t>(time));
  }
}

}  // namespace tessera
