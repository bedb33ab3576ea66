// A consistency policy that is watched: the server's list of waiting reads learns from it whose turn
// may have come, and need not ask for every one of them after every push.
#ifndef TESSERA_DEPLOY_SIMULATE_OBSERVED_POLICY_H_
#define TESSERA_DEPLOY_SIMULATE_OBSERVED_POLICY_H_

#include <memory>
#include <utility>

#include "common/consistency/forwarding_policy.h"

namespace tessera {

// What has happened to the policy since the last look.
struct PolicyNews {
  // The member whose push was folded last; 0: nobody's was.
  MemberId folded;
  // Others may read now than the one whose push was folded: there are other members than before, or several pushes were
  // folded.
  bool concerns_all = false;
};

class ObservedPolicy final : public ForwardingPolicy {
 public:
  // `news` outlives the policy.
  ObservedPolicy(std::unique_ptr<ConsistencyPolicy> policy, PolicyNews* news)
      : ForwardingPolicy(std::move(policy)), news_(*news) {}

  void SetMembers(const Plan& plan) override {
    news_.concerns_all = true;
    ForwardingPolicy::SetMembers(plan);
  }
  Verdict OnPush(const PushFacts& push) override {
    news_.concerns_all = news_.concerns_all || news_.folded != MemberId();
    news_.folded = push.member;
    return ForwardingPolicy::OnPush(push);
  }

 private:
  PolicyNews& news_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_OBSERVED_POLICY_H_
