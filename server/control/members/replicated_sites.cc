#include "server/control/members/replicated_sites.h"

#include <utility>

namespace tessera {

std::optional<ShardId> ReplicatedSites::DonorFor(ShardId server) const {
  if (!facts_.replicated || servers_.at(server).ready) return std::nullopt;
  for (int i = 1; i < servers_.count(); ++i) {
    const ShardId donor((server.value() + i) % servers_.count());
    if (servers_.IsReady(donor)) return donor;
  }
  return std::nullopt;
}

void ReplicatedSites::OrderCopies() {
  for (int i = 0; i < servers_.count(); ++i) {
    const ShardId server(i);
    if (!servers_.IsHere(server)) continue;
    const std::optional<ShardId> donor = DonorFor(server);
    if (!donor.has_value()) continue;
    v1::PlanMessage message;
    message.set_copy_from(servers_.at(*donor).address);
    outbox_.Tell(server, std::move(message));
  }
}

bool ReplicatedSites::HasAnother(ShardId server) const {
  for (int i = 0; facts_.replicated && i < servers_.count(); ++i) {
    if (ShardId(i) != server && servers_.IsReady(ShardId(i))) return true;
  }
  return false;
}

bool ReplicatedSites::MayBegin(const MemberRecord& member) const {
  if (!facts_.replicated) return true;
  const ShardId beside(member.rank.value());
  return servers_.IsReady(beside) || (servers_.IsHere(beside) && DonorFor(beside).has_value());
}

std::optional<uint32_t> ReplicatedSites::FreeRank() const {
  for (int i = 0; facts_.replicated && i < servers_.count(); ++i) {
    if (servers_.IsHere(ShardId(i)) && members_.LiveAt(Rank(i)) == nullptr) {
      return static_cast<uint32_t>(i);
    }
  }
  return std::nullopt;
}

}  // namespace tessera
