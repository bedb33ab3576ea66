// A small language for tests of policies: members and exchanges are plain numbers, the clock counts
// seconds.
#ifndef TESSERA_TESTS_COMMON_CONSISTENCY_POLICY_FIXTURE_H_
#define TESSERA_TESTS_COMMON_CONSISTENCY_POLICY_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/consistency/policy.h"

namespace tessera {

class PolicyFixture {
 public:
  explicit PolicyFixture(std::unique_ptr<ConsistencyPolicy> policy) : policy_(std::move(policy)) {}

  // Member and first exchange of each. Member m has rank m - 1.
  void Plan(std::vector<std::pair<uint64_t, uint64_t>> member_and_first) {
    tessera::Plan plan;
    plan.generation = Generation(++generation_);
    for (const auto& [member, first] : member_and_first) {
      plan.members.push_back({MemberId(member), Rank(member - 1), Exchange(first)});
    }
    policy_->SetMembers(plan);
  }
  Verdict Push(uint64_t member, uint64_t exchange, uint64_t examples = 0) {
    return policy_->OnPush({MemberId(member), Exchange(exchange), Version(0), Version(0), examples,
                            absl::FromUnixSeconds(now_)});
  }
  // A push that is tau versions late.
  Verdict Late(uint64_t member, uint64_t tau) {
    return policy_->OnPush(
        {MemberId(member), Exchange(1), Version(5), Version(5 + tau), 0, absl::UnixEpoch()});
  }
  bool MayRead(uint64_t member, uint64_t after) {
    return policy_->MayRead(MemberId(member), Exchange(after));
  }
  std::optional<float> CommitDue() { return policy_->CommitDue(absl::FromUnixSeconds(now_)); }
  void Rest(uint64_t member) { policy_->SetResting(MemberId(member), true); }
  void Wake(uint64_t member) { policy_->SetResting(MemberId(member), false); }
  uint64_t FirstExchange(uint64_t wanted) {
    return policy_->FirstExchange(Exchange(wanted)).value();
  }
  std::vector<uint64_t> WaitsFor() {
    std::vector<uint64_t> members;
    for (const MemberId member : policy_->WaitsFor()) members.push_back(member.value());
    return members;
  }
  // In seconds; -1: none.
  int64_t Deadline() {
    const std::optional<absl::Time> deadline = policy_->Deadline();
    return deadline.has_value() ? absl::ToUnixSeconds(*deadline) : -1;
  }
  void At(int64_t seconds) { now_ = seconds; }

 protected:
  std::unique_ptr<ConsistencyPolicy> policy_;

 private:
  uint64_t generation_ = 0;
  int64_t now_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CONSISTENCY_POLICY_FIXTURE_H_
