#include "server/control/members/shard_owners.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/log.h"

namespace tessera {
namespace {

// How long a shard has no other standby after the stream to one broke off.
constexpr absl::Duration kRetryPause = absl::Seconds(1);
// The number of takeovers whose durations are kept for the status.
constexpr size_t kSecondsMax = 256;

// The name by which a server's machine is called.
std::string MachineOf(const std::string& address) {
  const absl::optional<HostPort> parsed = ParseHostPort(address);
  return parsed ? parsed->host : address;
}

}  // namespace

ShardOwners::ShardOwners(const JobFacts& facts)
    : facts_(facts), hosts_(facts), shards_(facts.servers) {}

absl::Status ShardOwners::Attach(const v1::HostHello& hello, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(hosts_.Check(hello));
  if (hosts_.Replaces(hello)) Lose(hello.rank(), "it was started again", now);
  hosts_.Attach(hello, now);
  Log(LogLevel::kInfo,
      absl::StrCat("standby: host attached rank=", hello.rank(), " address=", hello.address()));
  for (size_t s = 0; s < shards_.size(); ++s) {
    // Before the start each leads its own; later whoever comes anew leads what was lost.
    if (!shards_[s].leader && (started_ || s == hello.rank())) Lead(s, hello.rank());
  }
  changed_.insert(hello.rank());
  ++changes_;
  Assign(now);
  return absl::OkStatus();
}

void ShardOwners::Detach(uint32_t host, uint64_t life, absl::Time now) {
  hosts_.Detach(host, life, now);
}

void ShardOwners::OnMessage(uint32_t host, const v1::HostMessage& message, absl::Time now) {
  if (!hosts_.at(host).known) return;  // It was given up, or may end, and has yet to hear of it.
  hosts_.OnHeard(host, now);
  changed_.insert(host);  // So that it knows that the coordinator lives.
  for (const v1::ShardOrder& follows : message.follows()) {
    if (follows.shard() >= shards_.size()) continue;
    ShardOwnership& shard = shards_[follows.shard()];
    // What is said of an earlier term is of a copy that is of no use any more.
    if (shard.standby != host || shard.term != follows.term() || shard.IsReady()) continue;
    shard.ready_term = shard.term;
    ++changes_;
    MarkShard(shard);
  }
  for (const v1::LeaderReport& report : message.leads()) {
    if (report.shard() >= shards_.size()) continue;
    ShardOwnership& shard = shards_[report.shard()];
    if (shard.leader != host || shard.term != report.term() || !shard.standby) continue;
    if (!report.broken().empty()) {
      Log(LogLevel::kWarning, absl::StrCat("standby: lost shard=", report.shard(), " host=",
                                           *shard.standby, " why=\"", report.broken(), "\""));
      DropStandby(report.shard());
      // A host that has failed would fail again at once where its memory or its network is what failed.
      shard.retry = now + kRetryPause;
    } else if (report.in_sync() && !shard.in_sync) {
      shard.in_sync = true;
      ++changes_;
      Log(LogLevel::kInfo, absl::StrCat("standby: protected shard=", report.shard(), " leader=",
                                        host, " standby=", *shard.standby, " term=", shard.term));
    }
  }
}

void ShardOwners::Tick(absl::Time now) {
  if (ended_) return;
  for (uint32_t h = 0; h < hosts_.count(); ++h) {
    if (const std::string why = hosts_.WhyLost(h, now); !why.empty()) Lose(h, why, now);
  }
  LeadLost(now);
  Assign(now);
}

void ShardOwners::OnShardSilent(ShardId shard, absl::Time now) {
  const std::optional<uint32_t> leader = shards_[shard.value()].leader;
  // Its leader was just lost, and the next one has had no time to speak.
  const bool is_known = std::any_of(losses_.begin(), losses_.end(),
                                    [&](const Loss& loss) { return loss.shard == shard; });
  if (leader.has_value() && !is_known && !ended_) {
    Lose(*leader, "its shard was silent for a lease", now);
  }
}

void ShardOwners::MarkShard(const ShardOwnership& shard) {
  if (shard.leader) changed_.insert(*shard.leader);
  if (shard.standby) changed_.insert(*shard.standby);
}

void ShardOwners::DropStandby(size_t s) {
  ShardOwnership& shard = shards_[s];
  MarkShard(shard);
  shard.standby.reset();
  shard.in_sync = false;
  ++shard.term;
  ++changes_;
}

// The standby that there was follows the leader before: it is dropped, and another one begins with an image.
void ShardOwners::Lead(size_t s, uint32_t host) {
  DropStandby(s);
  shards_[s].leader = host;
  shards_[s].lead_term = shards_[s].term;
  if (shards_[s].lost.has_value()) losses_.push_back({ShardId(s), false, "", /*led_anew=*/true});
  shards_[s].lost.reset();
  MarkShard(shards_[s]);
}

// The one that leads the fewest, the next in the ring of these.
void ShardOwners::LeadLost(absl::Time now) {
  for (size_t s = 0; started_ && s < shards_.size(); ++s) {
    const std::optional<absl::Time> lost = shards_[s].lost;
    if (!lost.has_value() || now - *lost < kPatienceLeases * facts_.lease_timeout) continue;
    std::optional<uint32_t> chosen;
    int64_t least = 0;
    for (size_t i = 1; i <= hosts_.count(); ++i) {
      const auto h = static_cast<uint32_t>((s + i) % hosts_.count());
      if (!hosts_.IsHere(h)) continue;
      const int64_t led = std::count_if(shards_.begin(), shards_.end(),
                                        [h](const auto& shard) { return shard.leader == h; });
      if (chosen.has_value() && led >= least) continue;
      chosen = h;
      least = led;
    }
    if (!chosen.has_value()) return;
    Lead(s, *chosen);
    Log(LogLevel::kWarning, absl::StrCat("standby: leads what was lost shard=", s,
                                         " host=", *chosen, " term=", shards_[s].term));
  }
}

void ShardOwners::Lose(uint32_t h, absl::string_view why, absl::Time now) {
  if (!hosts_.at(h).known) return;
  Log(LogLevel::kWarning, absl::StrCat("standby: host lost rank=", h, " why=\"", why, "\""));
  if (hosts_.at(h).attached) {
    refusals_.emplace_back(h, absl::StrCat("server ", h, " was given up: ", why));
  }
  Forget(h, why, now);
}

void ShardOwners::Forget(uint32_t h, absl::string_view why, absl::Time now) {
  ++changes_;
  if (leaving_ == h) leaving_.reset();
  hosts_.Remove(h);
  for (size_t s = 0; s < shards_.size(); ++s) {
    ShardOwnership& shard = shards_[s];
    if (shard.standby == h) DropStandby(s);
    if (shard.leader != h) continue;
    // A standby that is not in sync lacks something that was acknowledged; parameters that forget it are worse than
    // those of a checkpoint, as nobody could say what is missing.
    const bool is_safe = shard.standby && shard.in_sync && hosts_.at(*shard.standby).known;
    if (is_safe) {
      Lead(s, *shard.standby);
      ++takeovers_;
      // Before the start there is no plan to lead by.
      if (started_) shards_[s].noticed = now;
      Log(LogLevel::kWarning, absl::StrCat("standby: takes over shard=", s, " host=", *shard.leader,
                                           " term=", shard.term));
    } else {
      DropStandby(s);
      shard.leader.reset();
      shards_[s].noticed.reset();
      shards_[s].lost = now;
    }
    losses_.push_back({ShardId(s), is_safe, std::string(why)});
    // Before the start its own host may be back already, and nobody else will come for it.
    if (!is_safe && !started_ && s != h && hosts_.at(s).attached) Lead(s, static_cast<uint32_t>(s));
  }
  changed_.erase(h);
}

// The next host in the ring, so that load is spread; one of another machine than the leader's, where there is one, so
// that no machine has both.
std::optional<uint32_t> ShardOwners::FollowerFor(size_t s, uint32_t leader) const {
  std::optional<uint32_t> beside;
  for (size_t i = 1; i <= hosts_.count(); ++i) {
    const auto h = static_cast<uint32_t>((s + i) % hosts_.count());
    if (!hosts_.IsHere(h) || h == leader || leaving_ == h) continue;
    if (MachineOf(hosts_.at(h).address) != MachineOf(hosts_.at(leader).address)) return h;
    if (!beside.has_value()) beside = h;
  }
  return beside;
}

void ShardOwners::Assign(absl::Time now) {
  if (ended_) return;
  const auto is_led = [](const ShardOwnership& shard) { return shard.leader.has_value(); };
  // A host that comes for a shard that nobody leads is not to be busy with following another.
  if (!std::all_of(shards_.begin(), shards_.end(), is_led)) return;
  for (size_t s = 0; s < shards_.size(); ++s) {
    ShardOwnership& shard = shards_[s];
    // A new leader first learns the plan: until then it has nothing to tell a standby.
    if (shards_[s].noticed || shards_[s].retry > now) continue;
    const std::optional<uint32_t> follower = FollowerFor(s, *shard.leader);
    if (!follower.has_value()) continue;
    if (shard.standby && shard.standby == leaving_) DropStandby(s);
    if (shard.standby) continue;
    shard.standby = follower;
    ++shard.term;
    ++changes_;
    MarkShard(shard);
  }
}

void ShardOwners::SetLeaving(std::optional<uint32_t> host, absl::Time now) {
  if (leaving_ == host) return;
  leaving_ = host;
  leaving_since_ = now;
  ++changes_;
  Assign(now);
}

std::vector<std::string> ShardOwners::LeavingWaitsFor(absl::Time now) const {
  std::vector<std::string> names;
  // What others lead is safe without it; that they have a standby again is worth a while, and not the end of the wait.
  const bool is_patient = now - leaving_since_ < kPatienceLeases * facts_.lease_timeout;
  for (size_t s = 0; started_ && s < shards_.size(); ++s) {
    const ShardOwnership& shard = shards_[s];
    const bool is_its = shard.leader == leaving_;
    if (!shard.leader || (!is_its && !is_patient)) continue;
    const std::optional<uint32_t> follower = FollowerFor(s, *shard.leader);
    const bool is_safe = shard.standby && shard.standby != leaving_ && shard.in_sync &&
                         hosts_.at(*shard.standby).attached;
    if (is_safe || (!is_its && !follower.has_value())) continue;
    names.push_back(follower.has_value() ? absl::StrCat("standby of shard ", s)
                                         : absl::StrCat("another server to take over shard ", s));
  }
  return names;
}

bool ShardOwners::LeavesNobodyBehind() const {
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (!shards_[s].leader || shards_[s].leader != leaving_) continue;
    if (!shards_[s].in_sync && !FollowerFor(s, *leaving_).has_value()) return true;
  }
  return false;
}

void ShardOwners::LetGo(uint32_t host, absl::Time now) {
  if (!hosts_.at(host).known) return;
  Log(LogLevel::kInfo, absl::StrCat("standby: host leaves rank=", host));
  let_go_.push_back({host, {}});
  *let_go_.back().order.mutable_leave() = hosts_.at(host).leave;
  let_go_.back().order.mutable_leave()->set_may_end(true);
  Forget(host, "it was asked to end", now);
  Assign(now);
}

void ShardOwners::SetLeaveAnswer(uint32_t host, const v1::LeaveAnswer& answer) {
  if (!hosts_.at(host).known) return;
  if (hosts_.SetLeaveAnswer(host, answer)) changed_.insert(host);
}

void ShardOwners::GoBack() {
  for (size_t s = 0; s < shards_.size(); ++s) {
    DropStandby(s);
    shards_[s].noticed.reset();
  }
}

void ShardOwners::OnRestored(ShardId shard, absl::Time now) {
  if (!shards_[shard.value()].standby) return;
  DropStandby(shard.value());
  Assign(now);
}

void ShardOwners::End(absl::string_view failure) {
  ended_ = true;
  ++changes_;
  failure_ = std::string(failure);
  for (uint32_t h = 0; h < hosts_.count(); ++h) {
    if (hosts_.at(h).known) changed_.insert(h);
  }
}

bool ShardOwners::Leads(ShardId s, uint64_t lead_term, absl::string_view address) const {
  const ShardOwnership& shard = shards_[s.value()];
  return shard.leader && shard.lead_term == lead_term &&
         hosts_.at(*shard.leader).address == address;
}

void ShardOwners::OnLed(ShardId shard, absl::Time now) {
  std::optional<absl::Time>& noticed = shards_[shard.value()].noticed;
  if (!noticed) return;
  ++changes_;
  const double seconds = absl::ToDoubleSeconds(now - *std::exchange(noticed, std::nullopt));
  takeover_seconds_.push_back(seconds);
  if (takeover_seconds_.size() > kSecondsMax) takeover_seconds_.erase(takeover_seconds_.begin());
  Log(LogLevel::kInfo, absl::StrCat("standby: leads shard=", shard.value(), " seconds=", seconds));
  Assign(now);
}

bool ShardOwners::MayStart() const {
  // One that was lost before the start need not come back for it.
  return started_ || AllProtected() || hosts_.known() < 2;
}

bool ShardOwners::IsTakingOver() const {
  return std::any_of(shards_.begin(), shards_.end(),
                     [](const ShardOwnership& shard) { return shard.noticed.has_value(); });
}

bool ShardOwners::AllProtected() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const ShardOwnership& shard) { return shard.leader && shard.in_sync; });
}

bool ShardOwners::CanDoWithout(uint32_t host) const {
  return std::all_of(shards_.begin(), shards_.end(), [&](const ShardOwnership& shard) {
    return shard.leader != host ||
           (shard.standby && shard.in_sync && hosts_.at(*shard.standby).known);
  });
}

std::vector<std::string> ShardOwners::WaitingFor() const {
  std::vector<std::string> names;
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (shards_[s].leader && !shards_[s].in_sync) {
      names.push_back(absl::StrCat("standby of shard ", s));
    }
  }
  return names;
}

void ShardOwners::Fill(v1::JobStatus* status) const {
  for (size_t s = 0; s < shards_.size(); ++s) {
    *status->add_owners() = shards_[s].Text(static_cast<uint32_t>(s));
  }
  status->set_takeovers(takeovers_);
  for (double seconds : takeover_seconds_) status->add_takeover_seconds(seconds);
}

v1::HostOrder ShardOwners::OrderFor(uint32_t host) const {
  v1::HostOrder order;
  order.set_end(ended_);
  order.set_failure(failure_);
  if (hosts_.at(host).leave.ByteSizeLong() > 0) *order.mutable_leave() = hosts_.at(host).leave;
  for (size_t s = 0; s < shards_.size(); ++s) {
    const ShardOwnership& shard = shards_[s];
    if (shard.leader != host && shard.standby != host) continue;
    v1::ShardOrder& role = *order.add_shards();
    role.set_shard(static_cast<uint32_t>(s));
    role.set_role(shard.leader == host ? v1::LEAD : v1::FOLLOW);
    role.set_term(shard.term);
    if (shard.leader != host) continue;
    role.set_lead_term(shard.lead_term);
    // A log that comes before the standby knows of it would be refused.
    if (shard.IsReady()) role.set_standby(hosts_.at(*shard.standby).address);
  }
  return order;
}

// Whoever is refused or let go hears that and no orders; the others hear one order each, of where things stand now.
std::vector<HostOutgoing> ShardOwners::TakeOutbox() {
  std::vector<HostOutgoing> outbox;
  for (auto& [host, why] : std::exchange(refusals_, {})) {
    outbox.push_back({host, {}});
    outbox.back().order.set_refuse(why);
  }
  for (HostOutgoing& gone : std::exchange(let_go_, {})) outbox.push_back(std::move(gone));
  for (uint32_t host : std::exchange(changed_, {})) outbox.push_back({host, OrderFor(host)});
  return outbox;
}

v1::OwnersState ShardOwners::Save() const {
  v1::OwnersState state;
  hosts_.Save(&state);
  for (size_t s = 0; s < shards_.size(); ++s) {
    shards_[s].Save(static_cast<uint32_t>(s), state.add_shards());
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
  TESSERA_RETURN_IF_ERROR(hosts_.Load(state));
  for (size_t s = 0; s < shards_.size(); ++s) {
    const auto shard = static_cast<int>(s);
    TESSERA_RETURN_IF_ERROR(shards_[s].Load(static_cast<uint32_t>(s), state.shards(shard), hosts_));
  }
  leaving_.reset();
  if (state.has_leaving() && state.leaving() < hosts_.count()) leaving_ = state.leaving();
  leaving_since_ = absl::FromUnixNanos(state.leaving_since());
  started_ = state.started();
  ended_ = state.ended();
  failure_ = state.failure();
  takeovers_ = state.takeovers();
  takeover_seconds_.assign(state.takeover_seconds().begin(), state.takeover_seconds().end());
  return absl::OkStatus();
}

void ShardOwners::Reconnect(absl::Time now) {
  hosts_.Reconnect(now);
  ExtendLeases(now);
}

void ShardOwners::ExtendLeases(absl::Time now) {
  hosts_.ExtendLeases(now);
  if (leaving_) leaving_since_ = now;
}

}  // namespace tessera
