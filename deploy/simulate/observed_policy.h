// A consistency policy that is watched: the server's list of waiting reads learns from it whose turn
// may have come, and need not ask for every one of them after every push.
#ifndef TESSERA_DEPLOY_SIMULATE_OBSERVED_POLICY_H_
#define TESSERA_DEPLOY_SIMULATE_OBSERVED_POLICY_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/consistency/policy.h"

namespace tessera {

// What has happened to the policy since the last look.
struct PolicyNews {
  // Whose push was folded; nobody's.
  MemberId folded;
  // There are other members.
  bool members_changed = false;
};

// Passes every call on unchanged.
class ObservedPolicy final : public ConsistencyPolicy {
 public:
  // `news` outlives the policy.
  ObservedPolicy(std::unique_ptr<ConsistencyPolicy> policy, PolicyNews* news)
      : policy_(std::move(policy)), news_(*news) {}

  void SetMembers(const Plan& plan) override {
    news_.members_changed = true;
    policy_->SetMembers(plan);
  }
  std::optional<MemberId> NextInOrder() const override { return policy_->NextInOrder(); }
  Verdict OnPush(const PushFacts& push) override {
    news_.folded = push.member;
    return policy_->OnPush(push);
  }
  std::optional<float> CommitDue(absl::Time now) override { return policy_->CommitDue(now); }
  std::optional<absl::Time> Deadline() const override { return policy_->Deadline(); }
  void SetResting(MemberId member, bool resting) override { policy_->SetResting(member, resting); }
  Exchange FirstExchange(Exchange wanted) const override { return policy_->FirstExchange(wanted); }
  bool MayRead(MemberId member, Exchange after) const override {
    return policy_->MayRead(member, after);
  }
  Exchange Collecting() const override { return policy_->Collecting(); }
  std::vector<MemberId> WaitsFor() const override { return policy_->WaitsFor(); }
  PolicyState State() const override { return policy_->State(); }
  void SetState(const PolicyState& state) override { policy_->SetState(state); }

 private:
  const std::unique_ptr<ConsistencyPolicy> policy_;
  PolicyNews& news_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_OBSERVED_POLICY_H_
