// ShardOwners: to and from the coordinator's state.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/control/shard_owners.h"

namespace tessera {

v1::OwnersState ShardOwners::Save() const {
  v1::OwnersState state;
  for (const Host& host : hosts_) {
    v1::OwnersState::Host& saved = *state.add_hosts();
    saved.set_known(host.known);
    saved.set_life(host.life);
    saved.set_lost_life(host.lost_life);
    saved.set_address(host.address);
    saved.set_attached(host.attached);
    saved.set_last_heard(absl::ToUnixNanos(host.last_heard));
    saved.set_detached(absl::ToUnixNanos(host.detached));
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    v1::OwnersState::Shard& saved = *state.add_shards();
    *saved.mutable_owner() = OwnerText(s);
    saved.set_ready_term(progress_[s].ready_term);
    saved.set_noticed(progress_[s].noticed ? absl::ToUnixNanos(*progress_[s].noticed) : 0);
    saved.set_retry(absl::ToUnixNanos(progress_[s].retry));
    saved.set_lost(progress_[s].lost ? absl::ToUnixNanos(*progress_[s].lost) : 0);
  }
  state.set_started(started_);
  state.set_ended(ended_);
  state.set_failure(failure_);
  state.set_takeovers(takeovers_);
  for (const double seconds : takeover_seconds_) state.add_takeover_seconds(seconds);
  if (leaving_) {
    state.set_leaving(*leaving_);
    state.set_leaving_since(absl::ToUnixNanos(leaving_since_));
  }
  return state;
}

absl::Status ShardOwners::Load(const v1::OwnersState& state) {
  const auto count = static_cast<int>(hosts_.size());
  if (state.hosts_size() != count || state.shards_size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("hosts of shards are ", state.hosts_size(),
                                                   " and shards ", state.shards_size(), ", want ",
                                                   count, " of each"));
  }
  for (int h = 0; h < count; ++h) {
    const v1::OwnersState::Host& saved = state.hosts(h);
    Host& host = hosts_[h];
    host.known = saved.known();
    host.life = saved.life();
    host.lost_life = saved.lost_life();
    host.address = saved.address();
    host.attached = saved.attached();
    host.last_heard = absl::FromUnixNanos(saved.last_heard());
    host.detached = absl::FromUnixNanos(saved.detached());
  }
  for (int s = 0; s < count; ++s) {
    const v1::ShardOwner& saved = state.shards(s).owner();
    const auto is_host = [&](bool named, uint32_t host) {
      return !named || (host < hosts_.size() && hosts_[host].known);
    };
    const bool is_right = is_host(saved.has_leader(), saved.leader()) &&
                          is_host(saved.has_standby(), saved.standby()) &&
                          (saved.has_leader() || !saved.has_standby()) &&
                          (saved.has_standby() || !saved.in_sync()) &&
                          !(saved.has_standby() && saved.standby() == saved.leader()) &&
                          saved.lead_term() <= saved.term();
    if (!is_right) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", s, "'s leader and standby are none: ", saved.ShortDebugString()));
    }
    ShardOwnership& shard = shards_[s];
    shard = ShardOwnership();
    if (saved.has_leader()) shard.leader = saved.leader();
    if (saved.has_standby()) shard.standby = saved.standby();
    shard.in_sync = saved.in_sync();
    shard.term = saved.term();
    shard.lead_term = saved.lead_term();
    Progress& progress = progress_[s];
    progress = Progress();
    progress.ready_term = state.shards(s).ready_term();
    if (state.shards(s).noticed() != 0) {
      progress.noticed = absl::FromUnixNanos(state.shards(s).noticed());
    }
    progress.retry = absl::FromUnixNanos(state.shards(s).retry());
    if (state.shards(s).lost() != 0) {
      progress.lost = absl::FromUnixNanos(state.shards(s).lost());
    }
  }
  leaving_.reset();
  if (state.has_leaving() && state.leaving() < hosts_.size()) leaving_ = state.leaving();
  leaving_since_ = absl::FromUnixNanos(state.leaving_since());
  started_ = state.started();
  ended_ = state.ended();
  failure_ = state.failure();
  takeovers_ = state.takeovers();
  takeover_seconds_.assign(state.takeover_seconds().begin(), state.takeover_seconds().end());
  return absl::OkStatus();
}

void ShardOwners::Reconnect(absl::Time now) {
  for (Host& host : hosts_) {
    if (!host.known) continue;
    host.attached = false;
    // Its connection did not end by itself: it has as long as one that is silent.
    host.detached = now + facts_.lease_timeout;
  }
  ExtendLeases(now);
}

void ShardOwners::ExtendLeases(absl::Time now) {
  for (Host& host : hosts_) {
    if (!host.known) continue;
    host.last_heard = now;
    if (leaving_) leaving_since_ = now;
    if (!host.attached) host.detached = std::max(host.detached, now);
  }
}

}  // namespace tessera
