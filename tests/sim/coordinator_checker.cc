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
  Violate(
      absl::StrCat("two workers are member ", member.value(), ": lives ", first, " and ", life));
}

void Checker::OnStatus(const v1::JobStatus& status, uint64_t coordinator) {
  // What a process did and could not keep is not told, but for its clock, which another one sets right.
  constexpr double kUnkeptSeconds = 0.3;
  constexpr double kRounding = 1e-6;
  if (status_.has_value() && !is_forgiven_) {
    const v1::JobStatus& before = *status_;
    const bool is_same = status_from_ == coordinator;
    const double slack = is_same ? kRounding : kUnkeptSeconds;
    const auto fell = [this](const char* what, double from, double to) {
      Violate(absl::StrCat("status: ", what, " fell from ", from, " to ", to));
    };
    if (status.train_seconds() < before.train_seconds() - slack) {
      fell("train_seconds", before.train_seconds(), status.train_seconds());
    }
    if (status.wall_seconds() < before.wall_seconds() - kRounding) {
      fell("wall_seconds", before.wall_seconds(), status.wall_seconds());
    }
    const bool went_back = status.checkpoint().rollbacks() != before.checkpoint().rollbacks();
    // Workers of a job that has gone back join it anew.
    if (is_same && !went_back && status.members_joined() < before.members_joined()) {
      fell("members_joined", before.members_joined(), status.members_joined());
    }
    if (is_same && status.members_lost() < before.members_lost()) {
      fell("members_lost", before.members_lost(), status.members_lost());
    }
    // Until it goes on, some servers are counted as they were before they went back.
    const bool goes_on = before.state() == "training" || before.state() == "evaluating";
    // What a rogue says of its own examples is believed until it has gone.
    const bool has_rogue = std::any_of(lives_.begin(), lives_.end(), [](const auto& named) {
      return named.second >= kFirstRogueLife;
    });
    // A leader tells of commits that its standby may lack when it takes over: a known defect.
    const bool may_fall = went_back || has_rogue || status.takeovers() > 0;
    if (is_same && !may_fall && goes_on && status.examples() < before.examples()) {
      fell("examples", before.examples(), status.examples());
    }
  }
  if (status.train_seconds() > status.wall_seconds() + kRounding) {
    Violate(absl::StrCat("status: train_seconds is ", status.train_seconds(), " of wall_seconds ",
                         status.wall_seconds()));
  }
  status_ = status;
  status_from_ = coordinator;
}

void Checker::OnStuck(absl::string_view what) {
  if (!violation_.has_value()) violation_ = absl::StrCat("stuck: ", what);
}

}  // namespace tessera
