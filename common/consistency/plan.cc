#include "common/consistency/plan.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"

namespace tessera {
namespace {

// The limit of all shares together, as a cut holds their sums in 31 bits.
constexpr uint64_t kSharesEnd = uint64_t{1} << 31;

bool IsExchange(Exchange exchange) {
  return exchange > Exchange(0) && exchange < Exchange(kExchangeEnd);
}

}  // namespace

absl::Status CheckPlan(const Plan& plan) {
  const auto wrong = [&](MemberId member, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("plan of generation ", plan.generation.value(),
                                                   ": member ", member.value(), " ", why));
  };
  const auto rank_is = [](Rank rank) {
    return absl::StrCat("has rank ", rank.value(), ", want one below ", kRankEnd);
  };
  absl::flat_hash_set<MemberId> known;
  for (size_t i = 0; i < plan.members.size(); ++i) {
    const PlanMember& m = plan.members[i];
    if (m.member == MemberId(0) || !known.insert(m.member).second) {
      return wrong(m.member, "is there twice, or nobody");
    }
    // The order of ranks is the order in which a barrier folds, which must be the same on all servers.
    const bool is_in_order = i == 0 || plan.members[i - 1].rank < m.rank;
    if (!is_in_order) return wrong(m.member, "is not in rank order");
    if (m.rank >= Rank(kRankEnd)) return wrong(m.member, rank_is(m.rank));
    if (!IsExchange(m.first_exchange)) return wrong(m.member, "begins with no exchange");
  }
  for (const DepartedSite& f : plan.departed) {
    if (f.member == MemberId(0) || !known.insert(f.member).second) {
      return wrong(f.member, "is there twice, or nobody");
    }
    if (!IsExchange(f.first)) return wrong(f.member, "began with no exchange");
    if (f.rank >= Rank(kRankEnd)) return wrong(f.member, rank_is(f.rank));
  }
  const uint64_t sites = plan.members.size() + plan.departed.size();
  for (const PartShares& shares : plan.shares) {
    // A part's border is width * shares before it / all shares, in 64 bits: the limit keeps the sum within 31 bits.
    for (const auto& [member, share] : shares.of) {
      if (share == 0 || share * sites >= kSharesEnd) {
        return wrong(member, absl::StrCat("has share ", share));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<MemberId> SitesOf(const Plan& plan, Exchange round) {
  std::vector<std::pair<Rank, MemberId>> order;
  for (const PlanMember& m : plan.members) {
    if (m.first_exchange <= round) order.push_back({m.rank, m.member});
  }
  // A member that has left keeps its part of a round that was cut while it was there: parts of a round never change.
  for (const DepartedSite& m : plan.departed) {
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
  // The shares in force are those that were set last of all that apply by this round.
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
  // A site without a share of its own, such as one that joined since, gets the mean of the others.
  const uint32_t mean = std::max<uint64_t>(1, (sum + count / 2) / count);
  std::replace(shares.begin(), shares.end(), uint32_t{0}, mean);
  // Equal shares of any size cut as shares of 1 do, and compare equal to them.
  return std::equal(shares.begin() + 1, shares.end(), shares.begin()) ? equal : shares;
}

}  // namespace tessera
