// Membership: servers that hold all entries, and come and go while the job runs.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "server/control/membership.h"

namespace tessera {
namespace {

// Said by name when many are waited for.
constexpr size_t kYetToBeginMax = 16;

}  // namespace

v1::ServerList Membership::ServerListText() const {
  v1::ServerList list;
  list.set_generation(server_list_generation_);
  for (int i = 0; i < servers_.count(); ++i) {
    if (!servers_.IsHere(ShardId(i))) continue;
    const ServerRecord& record = servers_.at(ShardId(i));
    v1::ServerEntry& entry = *list.add_servers();
    entry.set_rank(static_cast<uint32_t>(i));
    entry.set_address(record.address);
    entry.set_life(record.life);
  }
  return list;
}

// A server and the worker of its rank are one site: what ends the one ends the other.
void Membership::LoseServer(ShardId server, absl::string_view why) {
  servers_.SetGone(server);
  ++server_list_generation_;
  ++changes_;
  Log(LogLevel::kWarning,
      absl::StrCat("control: server removed rank=", server.value(), " why=\"", why, "\""));
  // Without a connection it hears it when it comes back; whoever comes in its place is not meant.
  if (servers_.at(server).attached) {
    v1::PlanMessage refusal;
    refusal.set_refuse(absl::StrCat("server ", server.value(), " was removed: ", why));
    outbox_.push_back({server, refusal});
  }
  if (const MemberRecord* beside = members_.LiveAt(Rank(server.value())); beside != nullptr) {
    Remove(beside->member, MemberState::kLost, why);
  }
  if (open_) OnAgreement(open_->agreement.Drop(server));
  OrderCopies();
  CountPartialPushesWithout(server);
  AdmitPlanned();
}

void Membership::CountPartialPushesWithout(ShardId server) {
  for (const auto& [id, member] : members_.all()) {
    if (member.counted_by.count(server) == 0 || member.last_counted.count(server) > 0) continue;
    MemberRecord* record = members_.Find(id);
    record->counted_by.erase(server);
    ++changes_;
    LogPartialPush(*record);
  }
}

bool Membership::IsWarmingUp() const {
  if (facts_.warmup_steps == 0 || members_.Counted().empty()) return false;
  if (members_.forgotten().step() >= facts_.warmup_steps) return false;
  for (const auto& [id, member] : members_.all()) {
    if (member.progress.step() >= facts_.warmup_steps) return false;
  }
  return true;
}

void Membership::OnBegins(MemberId member, uint64_t step) {
  v1::Progress& progress = members_.Find(member)->progress;
  // Before its first renewal, which may be a while.
  if (facts_.warmup_steps > 0 && progress.step() == 0) progress.set_step(step);
}

std::vector<std::string> Membership::EndWarmUp(MemberId member) {
  std::vector<std::string> names = YetToBegin(member);
  members_.Find(member)->awaits_others = !names.empty();
  return names;
}

// All that are live, so that who dies meanwhile is waited for no longer than its lease.
std::vector<std::string> Membership::YetToBegin(MemberId but) const {
  if (facts_.warmup_steps == 0 || drain_wanted_ || training_over_ || closed_) return {};
  std::set<Rank> ranks;
  for (const auto& [id, member] : members_.all()) {
    if (id == but || !IsLive(member.state)) continue;
    // A server that has yet to copy another one may wait for the next push.
    if (member.state == MemberState::kWaiting && !servers_.IsReady(ShardId(member.rank.value()))) {
      continue;
    }
    const bool has_begun =
        member.state == MemberState::kAdmitted && member.progress.step() >= facts_.warmup_steps;
    if (!has_begun) ranks.insert(member.rank);
  }
  std::vector<std::string> names;
  for (const Rank rank : ranks) {
    if (names.size() < kYetToBeginMax) names.push_back(absl::StrCat("worker ", rank.value()));
  }
  return names;
}

// The next one in a ring, so that those who come together do not all ask the same one.
std::optional<ShardId> Membership::DonorFor(ShardId server) const {
  if (!facts_.replicated || servers_.at(server).ready) return std::nullopt;
  for (int i = 1; i < servers_.count(); ++i) {
    const ShardId donor((server.value() + i) % servers_.count());
    if (servers_.IsReady(donor)) return donor;
  }
  return std::nullopt;
}

bool Membership::CanDoWithout(ShardId server) const {
  if (owners_) return owners_->CanDoWithout(static_cast<uint32_t>(server.value()));
  for (int i = 0; facts_.replicated && i < servers_.count(); ++i) {
    if (ShardId(i) != server && servers_.IsReady(ShardId(i))) return true;
  }
  return false;
}

bool Membership::MayBegin(const MemberRecord& member) const {
  if (!facts_.replicated) return true;
  const ShardId beside(member.rank.value());
  return servers_.IsReady(beside) || (servers_.IsHere(beside) && DonorFor(beside).has_value());
}

void Membership::OrderCopies() {
  for (int i = 0; i < servers_.count(); ++i) {
    const ShardId server(i);
    if (!servers_.IsHere(server)) continue;
    const std::optional<ShardId> donor = DonorFor(server);
    if (!donor.has_value()) continue;
    v1::PlanMessage message;
    message.set_copy_from(servers_.at(*donor).address);
    outbox_.push_back({server, message});
  }
}

std::optional<uint32_t> Membership::RankBeside() const {
  if (!facts_.replicated || !started_) return std::nullopt;
  for (int i = 0; i < servers_.count(); ++i) {
    if (servers_.IsHere(ShardId(i)) && members_.LiveAt(Rank(i)) == nullptr) {
      return static_cast<uint32_t>(i);
    }
  }
  return std::nullopt;
}

}  // namespace tessera
