// What happens to the servers of a simulated job with standbys.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_job.h"

namespace tessera {
namespace {

// After the last fault. Hosts are started again within 2 s. A worker that hangs may keep a round open, which is
// not copied, for ten leases.
constexpr absl::Duration kProtectedWithin = absl::Seconds(8);
constexpr absl::Duration kProtectedWithinHung = absl::Seconds(25);
// Leases of servers, of those that might come for a shard, and of members.
constexpr absl::Duration kGoneBackWithin = absl::Seconds(10);
constexpr absl::Duration kRestartMost = absl::Seconds(2);
// Until a host that is asked to end has, and is back.
constexpr absl::Duration kLeavesWithin = absl::Seconds(8);

}  // namespace

void SimJob::StartHost(uint32_t rank) {
  SimHost::Options host;
  host.rank = rank;
  host.life = hosts_.size() + 1;
  host.shard_options = [this](ShardId shard) { return ShardOptions(shard); };
  host.mutation = options_.mutation;
  // Clocks of processes begin when they like.
  host.clock_error = dice_.Between(absl::ZeroDuration(), absl::Hours(1));
  host.hosts = &directory_;
  host.folder = folder_.get();
  host.has_faults = options_.faults;
  host.on_end = [this](uint32_t ended) {
    HarmHost(*LatestHost(ended), kRestartMost);
    RestartHost(ended);
  };
  host.on_left = [this](uint32_t left) {
    ++left_;
    RestartHost(left);
  };
  hosts_.push_back(
      std::make_unique<SimHost>(&network_, coordinator_.get(), &checker_, std::move(host)));
}

SimHost* SimJob::LatestHost(uint32_t rank) const {
  SimHost* latest = nullptr;
  for (const auto& host : hosts_) {
    if (host->rank() == rank) latest = host.get();
  }
  return latest;
}

SimHost* SimJob::SomeHost() {
  return LatestHost(static_cast<uint32_t>(dice_.Below(servers_count_)));
}

void SimJob::HarmHost(const SimHost& host, absl::Duration lasts) {
  const ShardOwners& owners = *coordinator_->state().membership().owners();
  harm_.OnHostGone(host.rank(), queue_.now(), lasts, owners.CanDoWithout(host.rank()));
}

void SimJob::RestartHost(uint32_t rank) {
  network_.After(chaos_, dice_.Between(absl::Milliseconds(20), kRestartMost), [this, rank] {
    if (LatestHost(rank)->is_alive() || coordinator_->state().ended()) return;
    StartHost(rank);
  });
}

// A shard that is lost for good ends the job, or takes it back to a checkpoint where there is one.
double SimJob::ChanceOfLoss() const { return checker_.wholes() > 0 ? 0.6 : 0.1; }

bool SimJob::OnlyLeaves() const { return options_.leaves && options_.seed % 2 == 1; }

// Some ask while another one goes, or comes back.
void SimJob::LeaveHost() {
  for (int i = 0; i < 2; ++i) {
    SimHost* const host = SomeHost();
    // Until others have what it has it may be that nobody else does.
    if (!OnlyLeaves()) HarmHost(*host, kLeavesWithin);
    if (host->is_alive()) host->Leave();
    if (!dice_.Chance(0.3)) return;
  }
}

void SimJob::StrikeHost() {
  if (OnlyLeaves() || (options_.leaves && dice_.Chance(0.5))) return LeaveHost();
  switch (dice_.Below(8)) {
    case 0:
    case 1:
      return KillHost();
    case 2:
      return FreezeHosts();
    case 3: {
      SimHost* const host = SomeHost();
      // Some come back when another leads.
      HarmHost(*host, coordinator_->state().facts().lease_timeout);
      return host->BreakLink();
    }
    case 4:
      harm_.OnLogBroken(queue_.now(), coordinator_->state().facts().lease_timeout);
      return SomeHost()->BreakLog();
    default:
      return CutHostLink();
  }
}

void SimJob::KillHost() {
  SimHost* const host = SomeHost();
  const ShardOwners& owners = *coordinator_->state().membership().owners();
  if (!host->is_alive() || (!owners.CanDoWithout(host->rank()) && !dice_.Chance(ChanceOfLoss()))) {
    return;
  }
  HarmHost(*host, kRestartMost);
  host->Die(/*is_silent=*/dice_.Chance(0.3));
  RestartHost(host->rank());
  // Where there is a checkpoint, rather its standby.
  const bool may_lose = checker_.wholes() > 0;
  if (!dice_.Chance(may_lose ? 0.6 : 0.05)) return;
  SimHost* const other =
      may_lose ? LatestHost((host->rank() + 1) % static_cast<uint32_t>(servers_count_))
               : SomeHost();
  if (!other->is_alive()) return;
  HarmHost(*other, kRestartMost);
  other->Die(/*is_silent=*/dice_.Chance(0.3));
  RestartHost(other->rank());
}

void SimJob::FreezeHosts() {
  const SimHost* const host = SomeHost();
  const ShardOwners& owners = *coordinator_->state().membership().owners();
  const absl::Duration longest = owners.CanDoWithout(host->rank()) || dice_.Chance(ChanceOfLoss())
                                     ? 2.5 * coordinator_->state().facts().lease_timeout
                                     : coordinator_->state().facts().lease_timeout / 3;
  HarmHost(*host, longest);
  network_.Freeze(host->node(), queue_.now() + dice_.Between(absl::ZeroDuration(), longest));
  if (!dice_.Chance(ChanceOfLoss())) return;
  const absl::Duration other = coordinator_->state().facts().lease_timeout / 3;
  network_.Freeze(SomeHost()->node(), queue_.now() + dice_.Between(absl::ZeroDuration(), other));
}

void SimJob::CutHostLink() {
  const absl::Duration lease = coordinator_->state().facts().lease_timeout;
  const SimHost* const host = SomeHost();
  const ShardOwners& owners = *coordinator_->state().membership().owners();
  switch (OnlyLeaves() ? 2 + dice_.Below(2) : dice_.Below(4)) {
    case 0:
      harm_.OnLogBroken(queue_.now(), 2.5 * lease);
      return network_.CutLink(host->node(), SomeHost()->node(), 2.5 * lease);
    case 1: {
      const bool may = owners.CanDoWithout(host->rank()) || dice_.Chance(ChanceOfLoss());
      if (may) HarmHost(*host, 2.5 * lease);
      return network_.CutLink(host->node(), coordinator_->node(), may ? 2.5 * lease : lease / 3);
    }
    case 2:
      return network_.CutLink(host->node(), workers_[dice_.Below(workers_.size())]->node(),
                              2.5 * lease);
    case 3: {
      const NodeId worker = workers_[dice_.Below(workers_.size())]->node();
      harm_.OnSilenced(worker);
      return network_.CutLink(worker, coordinator_->node(), 2.5 * lease);
    }
  }
}

void SimJob::CheckProtected() {
  const Coordinator& coordinator = coordinator_->state();
  const std::string state = coordinator.Status(queue_.now()).state();
  const bool trains = state == "training" || state == "evaluating";
  if (!coordinator.outcome().ok() || coordinator.ended()) return;
  if (!trains && !options_.checkpoints) return;
  protected_again_ = coordinator.membership().owners()->AllProtected();
  if (protected_again_) return;
  absl::Duration within = has_hung_ ? kProtectedWithinHung : kProtectedWithin;
  if (options_.checkpoints) within += kGoneBackWithin;
  if (queue_.now() > faults_end_ + within) {
    return checker_.Violate(absl::StrCat("no standbys long after the last fault: ", Describe()));
  }
  network_.After(chaos_, absl::Milliseconds(200), [this] { CheckProtected(); });
}

}  // namespace tessera
