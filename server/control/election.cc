#include "server/control/election.h"

#include <algorithm>

namespace tessera {
namespace {

// Between attempts where etcd does not answer.
constexpr absl::Duration kRetryPause = absl::Milliseconds(200);

}  // namespace

void Election::Lose(absl::Time now) {
  revision_ = 0;
  lease_ = 0;
  held_until_ = absl::InfinitePast();
  step_ = Step::kGrant;
  at_ = now;
}

void Election::OnGranted(absl::Time asked, const absl::StatusOr<Lease>& granted, absl::Time now) {
  if (!granted.ok()) {
    at_ = now + kRetryPause;
    return;
  }
  lease_ = granted->id;
  ttl_ = granted->ttl;
  held_until_ = HeldFrom(asked, ttl_);
  step_ = Step::kCampaign;
  at_ = now;
}

void Election::OnCampaign(const absl::StatusOr<Holder>& holder, absl::Time now) {
  // The lease counts whether or not it is known that the key is bound to it.
  if (now >= held_until_) return Lose(now);
  if (!holder.ok()) {
    at_ = now + kRetryPause;
    return;
  }
  if (holder->lease == lease_) {
    revision_ = holder->revision;
    step_ = Step::kKeep;
    at_ = now;
    return;
  }
  step_ = Step::kAwait;
  at_ = now;
}

// While it waits the lease runs down: with what is left of it nobody should begin.
void Election::OnAwaited(absl::Time now) {
  if (held_until_ - now < ttl_ / 2) return Lose(now);
  step_ = Step::kCampaign;
  at_ = now;
}

void Election::OnKept(absl::Time asked, const absl::StatusOr<absl::Duration>& ttl, absl::Time now) {
  if (absl::IsNotFound(ttl.status()) || now >= held_until_) return Lose(now);
  if (!ttl.ok()) {
    at_ = now + kRetryPause;
    return;
  }
  held_until_ = std::max(held_until_, HeldFrom(asked, *ttl));
  at_ = now + *ttl / 3;
}

void Election::Resign(absl::Time now) {
  const absl::Duration ttl = ttl_;
  Lose(now);
  at_ = now + ttl;
}

}  // namespace tessera
