#include "server/control/members/shard_ownership.h"

#include "absl/strings/str_cat.h"

namespace tessera {

v1::ShardOwner ShardOwnership::Text(uint32_t shard) const {
  v1::ShardOwner owner;
  owner.set_shard(shard);
  owner.set_term(term);
  owner.set_lead_term(lead_term);
  if (leader) owner.set_leader(*leader);
  if (standby) owner.set_standby(*standby);
  owner.set_in_sync(in_sync);
  return owner;
}

void ShardOwnership::Save(uint32_t shard, v1::OwnersState::Shard* saved) const {
  *saved->mutable_owner() = Text(shard);
  saved->set_ready_term(ready_term);
  saved->set_noticed(noticed ? absl::ToUnixNanos(*noticed) : 0);
  saved->set_retry(absl::ToUnixNanos(retry));
  saved->set_lost(lost ? absl::ToUnixNanos(*lost) : 0);
}

absl::Status ShardOwnership::Load(uint32_t shard, const v1::OwnersState::Shard& saved,
                                  const ShardHosts& hosts) {
  const v1::ShardOwner& owner = saved.owner();
  const auto is_host = [&](bool named, uint32_t host) {
    return !named || (host < hosts.count() && hosts.at(host).known);
  };
  const bool is_right = is_host(owner.has_leader(), owner.leader()) &&
                        is_host(owner.has_standby(), owner.standby()) &&
                        (owner.has_leader() || !owner.has_standby()) &&
                        (owner.has_standby() || !owner.in_sync()) &&
                        !(owner.has_standby() && owner.standby() == owner.leader()) &&
                        owner.lead_term() <= owner.term();
  if (!is_right) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", shard, "'s leader and standby are none: ", owner.ShortDebugString()));
  }
  *this = ShardOwnership();
  if (owner.has_leader()) leader = owner.leader();
  if (owner.has_standby()) standby = owner.standby();
  in_sync = owner.in_sync();
  term = owner.term();
  lead_term = owner.lead_term();
  ready_term = saved.ready_term();
  if (saved.noticed() != 0) noticed = absl::FromUnixNanos(saved.noticed());
  retry = absl::FromUnixNanos(saved.retry());
  if (saved.lost() != 0) lost = absl::FromUnixNanos(saved.lost());
  return absl::OkStatus();
}

}  // namespace tessera
