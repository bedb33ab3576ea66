// What must be true whichever process is the coordinator.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"

namespace tessera {

void Checker::OnPlanTold(const Plan& plan) {
  const Plan& first = plans_.emplace(plan.generation, plan).first->second;
  // Who has finished is left out without another generation: nobody waits for it.
  const Plan& larger = first.members.size() < plan.members.size() ? plan : first;
  const Plan& smaller = &larger == &plan ? first : plan;
  const auto is_there = [&larger](const PlanMember& member) {
    const PlanMember* const same = larger.Find(member.member);
    return same != nullptr && same->rank == member.rank &&
           same->first_exchange == member.first_exchange;
  };
  if (std::all_of(smaller.members.begin(), smaller.members.end(), is_there)) return;
  Violate(absl::StrCat("two plans of generation ", plan.generation.value(), ", of ",
                       first.members.size(), " members and of ", plan.members.size()));
}

void Checker::OnNamed(MemberId member, uint64_t life) {
  const uint64_t first = lives_.emplace(member, life).first->second;
  if (first == life) return;
  Violate(absl::StrCat("two workers are member ", member.value(), ": lives ", first, " and ",
                       life));
}

void Checker::OnStuck(absl::string_view what) {
  if (!violation_.has_value()) violation_ = absl::StrCat("stuck: ", what);
}

}  // namespace tessera
