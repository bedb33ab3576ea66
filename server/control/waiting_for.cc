// Membership: for whom a member and the job wait, in words.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/control/membership.h"

namespace tessera {
namespace {

// Said by name when many are waited for.
constexpr size_t kNamesMax = 16;

std::string Name(ShardId server) { return absl::StrCat("server ", server.value()); }

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

std::vector<std::string> Membership::WaitingFor(const MemberRecord& member) const {
  if (paused_ && member.state != MemberState::kAdmitted) return WaitingFor();
  std::vector<std::string> names;
  std::vector<ShardId> servers;
  switch (member.state) {
    case MemberState::kWaiting:
      if (!started_) {
        names = WaitingFor();
        // Numbered from 1, say: it is none of those whom the job begins with.
        if (!names.empty() && start_list_.Awaited().count(member.rank) == 0) {
          absl::StrAppend(&names.back(), " (worker ", member.rank.value(),
                          " joins once the job has begun)");
        }
        return names;
      }
      if (open_ && open_->joiner != MemberId()) {
        const MemberRecord& first = *members_.Find(open_->joiner);
        return {absl::StrCat("worker ", first.rank.value(), " to be admitted first")};
      }
      if (facts_.replicated && IsWarmingUp()) return {"the warm-up of worker 0"};
      if (facts_.replicated && !servers_.IsReady(ShardId(member.rank.value()))) {
        return {Name(ShardId(member.rank.value()))};
      }
      // Nobody is missing: what is promised is held.
      if (open_ && open_->hold) return {"a server that is asked to end, and its checkpoint"};
      // A lost site's end is agreed on before anybody is admitted.
      servers = open_ ? open_->agreement.Missing() : servers_.Behind(generation_);
      break;
    case MemberState::kProposed:
      servers = open_->agreement.Missing();
      break;
    case MemberState::kPlanned:
      servers = servers_.Behind(member.planned_in);
      break;
    default:
      break;
  }
  for (ShardId server : servers) names.push_back(Name(server));
  return names;
}

std::set<uint32_t> Membership::WaitedForByServers() const {
  std::set<uint32_t> all, behind;
  for (int i = 0; i < servers_.count(); ++i) {
    const v1::ServerCounters& counters = servers_.at(ShardId(i)).counters;
    const auto& ranks = counters.waits_for_ranks();
    all.insert(ranks.begin(), ranks.end());
    const bool is_behind = Exchange(counters.exchange_committed()) == servers_.LeastCommitted();
    if (is_behind) behind.insert(ranks.begin(), ranks.end());
  }
  // Members in lockstep push nothing to a server that is ahead before those behind have gone on.
  return facts_.synchronous && !behind.empty() ? behind : all;
}

// Known at once, where who waits for whom is only known once everybody stands.
std::vector<std::string> Membership::CutOff(std::optional<absl::Time> now) const {
  std::vector<std::string> names;
  // Without a time nobody is taken for silent.
  const absl::Time then = now.value_or(absl::InfinitePast());
  if (owners_) {
    for (const ShardOwners::Absent& host : owners_->Away(then)) {
      names.push_back(
          CutOffText(host.host, host.is_cut_off, host.since, "given up", host.until, now));
    }
    return names;
  }
  for (int i = 0; i < servers_.count(); ++i) {
    const ServerRecord& server = servers_.at(ShardId(i));
    if (!server.known || server.gone || server.left || !servers_.IsHere(ShardId(i))) continue;
    const bool is_silent = then - server.last_heard > facts_.lease_timeout / 2;
    if (server.attached && !is_silent) continue;
    const absl::Time since = server.attached ? server.last_heard : server.detached;
    names.push_back(CutOffText(static_cast<uint64_t>(i), !server.attached, since, "lease ends",
                               server.last_heard + facts_.lease_timeout, now));
  }
  return names;
}

std::vector<std::string> Membership::WaitingFor(std::optional<absl::Time> now) const {
  std::vector<std::string> names;
  if (!started_ && owners_ && servers_.AllKnown() && !owners_->MayStart()) {
    names = owners_->WaitingFor();
  }
  if (paused_) {
    for (int i = 0; i < servers_.count(); ++i) {
      if (!servers_.IsLost(ShardId(i))) continue;
      const bool left = servers_.at(ShardId(i)).left;
      names.push_back(absl::StrCat("server ", i, left ? " (asked to end; start it again)" : ""));
    }
    return names;
  }
  if (!started_) {
    for (int i = 0; i < servers_.count(); ++i) {
      const ServerRecord& server = servers_.at(ShardId(i));
      if (!server.known || server.restored < restore_generation_) {
        names.push_back(Name(ShardId(i)));
      }
    }
    for (const Rank rank : start_list_.Awaited()) {
      if (members_.LiveAt(rank) != nullptr) continue;
      if (names.size() >= kNamesMax) {
        names.push_back("more workers");
        break;
      }
      names.push_back(absl::StrCat("worker ", rank.value()));
    }
    return names;
  }
  if (std::vector<std::string> cut_off = CutOff(now); !cut_off.empty()) return cut_off;
  // Those that have answered hold the exchange until all have, and wait for no worker.
  if (open_) {
    for (const ShardId server : open_->agreement.Missing()) names.push_back(Name(server));
  }
  const std::set<uint32_t> ranks = WaitedForByServers();
  size_t named = 0;
  for (uint32_t rank : ranks) {
    if (named++ == kNamesMax) {
      names.push_back(absl::StrCat(ranks.size() - kNamesMax, " more workers"));
      break;
    }
    names.push_back(absl::StrCat("worker ", rank));
  }
  for (const MemberRecord* member : members_.Counted()) {
    if (member->awaits_others) return YetToBegin(member->member);
  }
  return names;
}

}  // namespace tessera
