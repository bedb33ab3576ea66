#include "server/control/members/job_waits.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

std::string Name(ShardId server) { return absl::StrCat("server ", server.value()); }

std::vector<std::string> NamesOf(const std::vector<ShardId>& servers) {
  std::vector<std::string> names;
  for (const ShardId server : servers) names.push_back(Name(server));
  return names;
}

std::string Seconds(absl::Duration duration) {
  return absl::FormatDuration(
      absl::Trunc(std::max(duration, absl::ZeroDuration()), absl::Milliseconds(100)));
}

// "server 1 (connection lost 1.2s ago, lease ends in 8s)"; without a time "server 1 (connection lost)".
std::string CutOffText(uint64_t server, bool is_cut_off, absl::Time since, absl::string_view ends,
                       absl::Time until, std::optional<absl::Time> now) {
  std::string text =
      absl::StrCat("server ", server, is_cut_off ? " (connection lost" : " (last heard");
  if (now) {
    const absl::Duration left =
        absl::Ceil(std::max(until - *now, absl::ZeroDuration()), absl::Seconds(1));
    absl::StrAppend(&text, " ", Seconds(*now - since), " ago, ", ends, " in ",
                    absl::FormatDuration(left));
  }
  return absl::StrCat(text, ")");
}

}  // namespace

std::vector<std::string> JobWaits::OfMember(const MemberRecord& member) const {
  if (on_.stage.paused() && member.state != MemberState::kAdmitted) return OfJob(std::nullopt);
  switch (member.state) {
    case MemberState::kWaiting:
      return OfWaitingMember(member);
    case MemberState::kProposed:
      return NamesOf(on_.proposals.Missing());
    case MemberState::kPlanned:
      return NamesOf(on_.servers.Behind(member.planned_in));
    default:
      return {};
  }
}

std::vector<std::string> JobWaits::OfWaitingMember(const MemberRecord& member) const {
  if (!on_.stage.started()) {
    std::vector<std::string> names = OfJob(std::nullopt);
    // A rank that is none of those whom the job begins with, because ranks were numbered from 1, say.
    if (!names.empty() && on_.start_list.Awaited().count(member.rank) == 0) {
      absl::StrAppend(&names.back(), " (worker ", member.rank.value(),
                      " joins once the job has begun)");
    }
    return names;
  }
  if (const MemberRecord* const first = on_.members.Find(on_.proposals.joiner());
      first != nullptr) {
    return {absl::StrCat("worker ", first->rank.value(), " to be admitted first")};
  }
  if (on_.facts.replicated && on_.warm_up.IsOn()) return {"the warm-up of worker 0"};
  const ShardId beside(member.rank.value());
  if (on_.facts.replicated && !on_.servers.IsReady(beside)) return {Name(beside)};
  // Nobody is missing: what is promised is held.
  if (on_.proposals.IsFor(Proposals::Purpose::kHold)) {
    return {"a server that is asked to end, and its checkpoint"};
  }
  // A lost site's end is agreed on before anybody is admitted.
  return NamesOf(on_.proposals.open() ? on_.proposals.Missing()
                                      : on_.servers.Behind(on_.plans.generation()));
}

std::vector<std::string> JobWaits::OfJob(std::optional<absl::Time> now) const {
  if (on_.stage.paused()) return LostServers();
  if (!on_.stage.started()) return BeforeStart();
  if (std::vector<std::string> cut_off = CutOff(now); !cut_off.empty()) return cut_off;
  // Those that have answered a proposal hold the exchange until all have, and wait for no worker.
  std::vector<std::string> names = NamesOf(on_.proposals.Missing());
  const std::set<uint32_t> ranks = WaitedForByServers();
  size_t named = 0;
  for (uint32_t rank : ranks) {
    if (named++ == kWaitNamesMax) {
      names.push_back(absl::StrCat(ranks.size() - kWaitNamesMax, " more workers"));
      break;
    }
    names.push_back(absl::StrCat("worker ", rank));
  }
  return on_.warm_up.WaitingFor().value_or(std::move(names));
}

std::vector<std::string> JobWaits::LostServers() const {
  std::vector<std::string> names;
  for (int i = 0; i < on_.servers.count(); ++i) {
    if (!on_.servers.IsLost(ShardId(i))) continue;
    const bool has_left = on_.servers.at(ShardId(i)).left;
    names.push_back(absl::StrCat("server ", i, has_left ? " (asked to end; start it again)" : ""));
  }
  return names;
}

std::vector<std::string> JobWaits::BeforeStart() const {
  std::vector<std::string> names;
  if (on_.owners != nullptr && on_.servers.AllKnown() && !on_.owners->MayStart()) {
    names = on_.owners->WaitingFor();
  }
  for (int i = 0; i < on_.servers.count(); ++i) {
    const ServerRecord& server = on_.servers.at(ShardId(i));
    if (!server.known || server.restored < on_.start.generation()) {
      names.push_back(Name(ShardId(i)));
    }
  }
  for (const Rank rank : on_.start_list.Awaited()) {
    if (on_.members.LiveAt(rank) != nullptr) continue;
    if (names.size() >= kWaitNamesMax) {
      names.push_back("more workers");
      break;
    }
    names.push_back(absl::StrCat("worker ", rank.value()));
  }
  return names;
}

// Servers that are cut off are known at once, where who waits for whom is only known once everybody stands.
std::vector<std::string> JobWaits::CutOff(std::optional<absl::Time> now) const {
  std::vector<std::string> names;
  // Without a time nobody is taken for silent.
  const absl::Time then = now.value_or(absl::InfinitePast());
  if (on_.owners != nullptr) {
    for (const ShardHosts::Absent& host : on_.owners->hosts().Away(then)) {
      names.push_back(
          CutOffText(host.host, host.is_cut_off, host.since, "given up", host.until, now));
    }
    return names;
  }
  const absl::Duration lease = on_.facts.lease_timeout;
  for (int i = 0; i < on_.servers.count(); ++i) {
    const ServerRecord& server = on_.servers.at(ShardId(i));
    if (!server.known || server.gone || server.left || !on_.servers.IsHere(ShardId(i))) continue;
    const bool is_silent = then - server.last_heard > lease / 2;
    if (server.attached && !is_silent) continue;
    const absl::Time since = server.attached ? server.last_heard : server.detached;
    names.push_back(CutOffText(static_cast<uint64_t>(i), !server.attached, since, "lease ends",
                               server.last_heard + lease, now));
  }
  return names;
}

std::set<uint32_t> JobWaits::WaitedForByServers() const {
  std::set<uint32_t> all, behind;
  for (int i = 0; i < on_.servers.count(); ++i) {
    const v1::ServerCounters& counters = on_.servers.at(ShardId(i)).counters;
    const auto& ranks = counters.waits_for_ranks();
    all.insert(ranks.begin(), ranks.end());
    const bool is_behind = Exchange(counters.exchange_committed()) == on_.servers.LeastCommitted();
    if (is_behind) behind.insert(ranks.begin(), ranks.end());
  }
  // Members in lockstep push nothing to a server that is ahead before those behind have gone on.
  return on_.facts.synchronous && !behind.empty() ? behind : all;
}

}  // namespace tessera
