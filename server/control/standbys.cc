// Membership: shards that standbys take over.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "server/control/membership.h"

namespace tessera {

// Only a shard's leader speaks for it.
absl::Status Membership::CheckLeader(const v1::ServerHello& hello) const {
  if (!owners_ || hello.rank() >= static_cast<uint32_t>(servers_.count())) return absl::OkStatus();
  if (owners_->Leads(ShardId(hello.rank()), hello.lead_term(), hello.address())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", hello.rank(), ": another server leads it than the one at ",
                   hello.address(), " of term ", hello.lead_term()));
}

void Membership::OnServerSilent(ShardId server, absl::Time now) {
  if (owners_) return owners_->OnShardSilent(server, now);
  const absl::Duration silence = now - servers_.at(server).last_heard;
  OnServerLost(
      server,
      absl::StrCat("last heard ", absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(1))),
                   " ago, lease ", absl::FormatDuration(facts_.lease_timeout)));
}

std::vector<ShardId> Membership::FollowLosses(absl::Time now) {
  std::vector<ShardId> taken_over;
  if (!owners_) return taken_over;
  for (const ShardOwners::Loss& loss : owners_->TakeLosses()) {
    if (loss.led_anew) {
      servers_.GiveTime(loss.shard, now);
      continue;
    }
    if (!started_ || closed_) {
      servers_.Forget(loss.shard);
      continue;
    }
    servers_.HandOver(loss.shard, now);
    if (loss.taken_over) {
      taken_over.push_back(loss.shard);
    } else {
      OnServerLost(loss.shard, loss.why);
    }
  }
  return taken_over;
}

}  // namespace tessera
