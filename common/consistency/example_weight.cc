#include "common/consistency/example_weight.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/consistency/forwarding_policy.h"

namespace tessera {
namespace {

class ExampleWeighted final : public ForwardingPolicy {
 public:
  ExampleWeighted(std::unique_ptr<ConsistencyPolicy> policy, uint64_t whole)
      : ForwardingPolicy(std::move(policy)), whole_(static_cast<double>(whole)) {
    TESSERA_CHECK(whole >= 1);
  }

  Verdict OnPush(const PushFacts& push) override {
    Verdict verdict = ForwardingPolicy::OnPush(push);
    const auto examples = static_cast<double>(std::max<uint64_t>(1, push.examples));
    verdict.weight *= static_cast<float>(std::min(kExampleWeightMost, examples / whole_));
    return verdict;
  }

 private:
  const double whole_;
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeExampleWeighted(std::unique_ptr<ConsistencyPolicy> policy,
                                                       uint64_t whole) {
  return std::make_unique<ExampleWeighted>(std::move(policy), whole);
}

}  // namespace tessera
