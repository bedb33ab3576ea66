#include "common/consistency/plan.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace tessera {

std::vector<MemberId> SitesOf(const Plan& plan, Exchange round) {
  std::vector<std::pair<Rank, MemberId>> order;
  for (const PlanMember& m : plan.members) {
    if (m.first_exchange <= round) order.push_back({m.rank, m.member});
  }
  for (const FormerSite& m : plan.former) {
    const bool has_ended = m.until != Exchange(0) && m.until <= round;
    if (m.first <= round && !has_ended) order.push_back({m.rank, m.member});
  }
  std::sort(order.begin(), order.end());
  std::vector<MemberId> sites;
  sites.reserve(order.size());
  for (const auto& [rank, member] : order) sites.push_back(member);
  return sites;
}

std::vector<uint32_t> SharesOf(const Plan& plan, Exchange round,
                               const std::vector<MemberId>& sites) {
  const PartShares* in_force = nullptr;
  for (const PartShares& shares : plan.shares) {
    if (shares.first <= round && (in_force == nullptr || shares.first > in_force->first)) {
      in_force = &shares;
    }
  }
  const std::vector<uint32_t> equal(sites.size(), 1);
  if (in_force == nullptr) return equal;
  std::vector<uint32_t> shares(sites.size(), 0);
  uint64_t sum = 0, count = 0;
  const absl::flat_hash_map<MemberId, uint32_t> of(in_force->of.begin(), in_force->of.end());
  for (size_t i = 0; i < sites.size(); ++i) {
    const auto found = of.find(sites[i]);
    if (found == of.end()) continue;
    shares[i] = found->second;
    sum += shares[i];
    ++count;
  }
  if (count == 0) return equal;
  const uint32_t mean = std::max<uint64_t>(1, (sum + count / 2) / count);
  std::replace(shares.begin(), shares.end(), uint32_t{0}, mean);
  return std::equal(shares.begin() + 1, shares.end(), shares.begin()) ? equal : shares;
}

}  // namespace tessera
