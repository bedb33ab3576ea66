// Membership: records of members that ended long ago are dropped, so that neither state nor status grows with every
// worker that ever came.
#include "server/control/membership.h"

namespace tessera {
namespace {

// Whoever was to join anew has done so by then, or is gone.
constexpr int kForgetLeases = 16;

}  // namespace

bool Membership::IsNeeded(const MemberRecord& member, absl::Time now) const {
  if (MayRejoin(member.state)) {
    return now - member.last_heard <= kForgetLeases * facts_.lease_timeout;
  }
  // As PlanText has it.
  const bool is_site = member.site_until && (*member.site_until == Exchange(0) ||
                                             *member.site_until > servers_.LeastCommitted());
  // Servers have yet to say which pushes of it they had.
  const bool is_open =
      member.planned_in != Generation() && member.last_counted.size() < member.counted_by.size();
  return is_site || is_open || parts_.PartOf(member.member) > 0 ||
         (facts_.front_workers > 0 && IsFormerWorker(member, members_.LeastStep()));
}

void Membership::ForgetEnded(absl::Time now) {
  // Nobody comes any more, and the report has all who are there at the end.
  if (training_over_ || drain_wanted_ || closed_) return;
  for (const MemberId id : members_.EndedLongAgo()) {
    const MemberRecord& member = *members_.Find(id);
    if (IsNeeded(member, now)) continue;
    partial_pushes_ += member.has_partial_push();
    members_.Forget(id, ExamplesOf(member));
  }
}

}  // namespace tessera
