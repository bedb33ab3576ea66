#include "server/control/members/shard_hosts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "server/control/digest_check.h"

namespace tessera {
namespace {

// A host whose connection has ended may make another one in this time, where the lease is not shorter.
constexpr absl::Duration kGrace = absl::Milliseconds(500);

absl::Duration GraceOf(const JobFacts& facts) { return std::min(kGrace, facts.lease_timeout / 2); }

std::string Ago(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

absl::Status ShardHosts::CheckJob(const v1::HostHello& hello) const {
  const std::string who = absl::StrCat("server ", hello.rank());
  if (hello.rank() >= hosts_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": want a rank in [0, ", hosts_.size(), ")"));
  }
  TESSERA_RETURN_IF_ERROR(CheckDigest(who, hello.job_digest(), hello.job_text(), facts_));
  if (hello.layout_hash() != facts_.layout_hash) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: layout hash is %016x, want %016x; all must run the same build", who,
                        hello.layout_hash(), facts_.layout_hash));
  }
  return CheckInitialSum(who, hello.initial_sum(), facts_);
}

absl::Status ShardHosts::Check(const v1::HostHello& hello) const {
  TESSERA_RETURN_IF_ERROR(CheckJob(hello));
  const std::string who = absl::StrCat("server ", hello.rank());
  const HostRecord& host = hosts_[hello.rank()];
  if (hello.life() == host.lost_life) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, " was given up, and its shards have moved; start it again"));
  }
  if (host.known && host.life != hello.life() && host.attached) {
    return absl::AlreadyExistsError(
        absl::StrCat(who, ": another process at ", host.address, " holds this rank"));
  }
  return absl::OkStatus();
}

bool ShardHosts::Replaces(const v1::HostHello& hello) const {
  const HostRecord& host = hosts_[hello.rank()];
  return host.known && host.life != hello.life();
}

void ShardHosts::Attach(const v1::HostHello& hello, absl::Time now) {
  HostRecord& host = hosts_[hello.rank()];
  host.known = true;
  host.attached = true;
  host.life = hello.life();
  host.address = hello.address();
  host.last_heard = now;
}

void ShardHosts::Detach(uint32_t rank, uint64_t life, absl::Time now) {
  HostRecord& host = hosts_[rank];
  if (!host.known || host.life != life) return;
  host.attached = false;
  host.detached = now;
}

bool ShardHosts::SetLeaveAnswer(uint32_t rank, const v1::LeaveAnswer& answer) {
  v1::LeaveAnswer& told = hosts_[rank].leave;
  if (told.SerializeAsString() == answer.SerializeAsString()) return false;
  told = answer;
  return true;
}

void ShardHosts::Remove(uint32_t rank) {
  const uint64_t life = hosts_[rank].life;
  hosts_[rank] = HostRecord();
  hosts_[rank].lost_life = life;
}

std::string ShardHosts::WhyLost(uint32_t rank, absl::Time now) const {
  const HostRecord& host = hosts_[rank];
  if (!host.known) return "";
  if (now - host.last_heard > facts_.lease_timeout) {
    return absl::StrCat("it was last heard ", Ago(now - host.last_heard), " ago, lease ",
                        absl::FormatDuration(facts_.lease_timeout));
  }
  if (host.attached || now - host.detached <= GraceOf(facts_)) return "";
  return absl::StrCat("its connection ended ", Ago(now - host.detached), " ago");
}

std::vector<ShardHosts::Absent> ShardHosts::Away(absl::Time now) const {
  std::vector<Absent> away;
  for (uint32_t h = 0; h < count(); ++h) {
    const HostRecord& host = hosts_[h];
    const absl::Time lease_end = host.last_heard + facts_.lease_timeout;
    if (host.known && !host.attached) {
      away.push_back(
          {h, true, host.detached, std::min(host.detached + GraceOf(facts_), lease_end)});
    } else if (host.known && now - host.last_heard > facts_.lease_timeout / 2) {
      away.push_back({h, false, host.last_heard, lease_end});
    }
  }
  return away;
}

int ShardHosts::known() const {
  return static_cast<int>(std::count_if(hosts_.begin(), hosts_.end(),
                                        [](const HostRecord& host) { return host.known; }));
}

void ShardHosts::Save(v1::OwnersState* state) const {
  for (const HostRecord& host : hosts_) {
    v1::OwnersState::Host& saved = *state->add_hosts();
    saved.set_known(host.known);
    saved.set_life(host.life);
    saved.set_lost_life(host.lost_life);
    saved.set_address(host.address);
    saved.set_attached(host.attached);
    saved.set_last_heard(absl::ToUnixNanos(host.last_heard));
    saved.set_detached(absl::ToUnixNanos(host.detached));
  }
}

absl::Status ShardHosts::Load(const v1::OwnersState& state) {
  if (state.hosts_size() != static_cast<int>(hosts_.size()) ||
      state.shards_size() != state.hosts_size()) {
    return absl::InvalidArgumentError(absl::StrCat("hosts of shards are ", state.hosts_size(),
                                                   " and shards ", state.shards_size(), ", want ",
                                                   hosts_.size(), " of each"));
  }
  for (uint32_t h = 0; h < count(); ++h) {
    const v1::OwnersState::Host& saved = state.hosts(static_cast<int>(h));
    HostRecord& host = hosts_[h];
    host.known = saved.known();
    host.life = saved.life();
    host.lost_life = saved.lost_life();
    host.address = saved.address();
    host.attached = saved.attached();
    host.last_heard = absl::FromUnixNanos(saved.last_heard());
    host.detached = absl::FromUnixNanos(saved.detached());
  }
  return absl::OkStatus();
}

void ShardHosts::Reconnect(absl::Time now) {
  for (HostRecord& host : hosts_) {
    if (!host.known) continue;
    host.attached = false;
    // Its connection did not end by itself: it has as long as one that is silent.
    host.detached = now + facts_.lease_timeout;
  }
  ExtendLeases(now);
}

void ShardHosts::ExtendLeases(absl::Time now) {
  for (HostRecord& host : hosts_) {
    if (!host.known) continue;
    host.last_heard = now;
    if (!host.attached) host.detached = std::max(host.detached, now);
  }
}

}  // namespace tessera
