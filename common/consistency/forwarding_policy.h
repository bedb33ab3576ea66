// A policy that does what another one does: for those that look on, or change one answer.
#ifndef TESSERA_COMMON_CONSISTENCY_FORWARDING_POLICY_H_
#define TESSERA_COMMON_CONSISTENCY_FORWARDING_POLICY_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/consistency/policy.h"

namespace tessera {

class ForwardingPolicy : public ConsistencyPolicy {
 public:
  explicit ForwardingPolicy(std::unique_ptr<ConsistencyPolicy> policy)
      : policy_(std::move(policy)) {}

  void SetMembers(const Plan& plan) override { policy_->SetMembers(plan); }
  std::optional<MemberId> NextInOrder() const override { return policy_->NextInOrder(); }
  Verdict OnPush(const PushFacts& push) override { return policy_->OnPush(push); }
  std::optional<float> CommitDue(absl::Time now) override { return policy_->CommitDue(now); }
  std::optional<absl::Time> Deadline() const override { return policy_->Deadline(); }
  void SetResting(MemberId member, bool resting) override { policy_->SetResting(member, resting); }
  Exchange FirstExchange(Exchange wanted) const override { return policy_->FirstExchange(wanted); }
  bool MayRead(MemberId member, Exchange after) const override {
    return policy_->MayRead(member, after);
  }
  Exchange Collecting() const override { return policy_->Collecting(); }
  std::vector<MemberId> WaitsFor() const override { return policy_->WaitsFor(); }
  PolicyState State() override { return policy_->State(); }
  void SetState(const PolicyState& state) override { policy_->SetState(state); }

 protected:
  // Has this policy asked from now on.
  void Replace(std::unique_ptr<ConsistencyPolicy> policy) { policy_ = std::move(policy); }

 private:
  std::unique_ptr<ConsistencyPolicy> policy_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_FORWARDING_POLICY_H_
