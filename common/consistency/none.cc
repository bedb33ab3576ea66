#include "common/consistency/none.h"

namespace tessera {
namespace {

class None final : public ConsistencyPolicy {
 public:
  explicit None(StalenessWeight weight) : weight_(weight) {}

  void SetMembers(const Plan& plan) override {}
  std::optional<MemberId> NextInOrder() const override { return std::nullopt; }
  Verdict OnPush(const PushFacts& push) override {
    return {weight_(push.now.value() - push.base.value()), /*commit=*/true, /*commit_scale=*/1};
  }
  std::optional<float> CommitDue(absl::Time now) override { return std::nullopt; }
  bool MayRead(MemberId member, Exchange after) const override { return true; }
  // Exchange 0 says that members advance on their own.
  Exchange Collecting() const override { return Exchange(0); }
  std::vector<MemberId> WaitsFor() const override { return {}; }

 private:
  const StalenessWeight weight_;
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeNone(StalenessWeight weight) {
  return std::make_unique<None>(weight);
}

std::unique_ptr<ConsistencyPolicy> MakeNone(float scale) {
  StalenessWeight weight;
  weight.scale = scale;
  return MakeNone(weight);
}

}  // namespace tessera
