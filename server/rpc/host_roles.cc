#include "server/rpc/host_roles.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::StatusOr<RoleChanges> HostRoles::Take(const v1::HostOrder& order) {
  // Orders are repeated with every connection; the same one changes nothing.
  RoleChanges changes;
  std::string text = order.SerializeAsString();
  changes.is_same = text == last_order_;
  if (changes.is_same) return changes;
  // An order is checked as a whole before any of it is carried out.
  std::set<uint32_t> named;
  for (const v1::ShardOrder& role : order.shards()) {
    const bool is_right =
        role.shard() < shard_count_ && (role.role() == v1::LEAD || role.role() == v1::FOLLOW);
    if (!is_right) {
      return absl::InvalidArgumentError(
          absl::StrCat("coordinator's order: role ", static_cast<int>(role.role()), " of shard ",
                       role.shard(), ", want to lead or follow one of ", shard_count_));
    }
    if (!named.insert(role.shard()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("coordinator's order: shard ", role.shard(), " has two roles, want one"));
    }
  }
  last_order_ = std::move(text);
  std::set<ShardId> leads;
  for (const v1::ShardOrder& role : order.shards()) {
    const ShardId shard(role.shard());
    if (role.role() == v1::FOLLOW) {
      changes.follow[shard] = role.term();
      changes.followed.insert(shard);
      continue;
    }
    leads.insert(shard);
    const auto [found, is_new] = led_.try_emplace(shard);
    Led& led = found->second;
    if (is_new) {
      led.lead_term = role.lead_term();
      changes.lead[shard] = role.lead_term();
    } else if (led.lead_term != role.lead_term()) {
      // The shard here has not seen what the other leader did.
      return absl::FailedPreconditionError(
          absl::StrCat("shard ", role.shard(), " was led by another meanwhile; start it again"));
    }
    if (led.term == role.term() && led.standby == role.standby()) continue;
    led.term = role.term();
    led.standby = role.standby();
    changes.feed.push_back({shard, role.term(), role.standby()});
  }
  for (const auto& [shard, led] : led_) {
    // A server cannot lose a shard that it leads and go on: its parameters would be old when it got it back.
    if (leads.count(shard) > 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("shard ", shard.value(), " is led by another; start it again"));
  }
  return changes;
}

}  // namespace tessera
