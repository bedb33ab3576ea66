#include "common/consistency/none.h"

namespace tessera {
namespace {

class None final : public ConsistencyPolicy {
 public:
  explicit None(float scale) : scale_(scale) {}

  void SetMembers(const Plan& plan) override {}
  std::optional<MemberId> NextInOrder() const override { return std::nullopt; }
  Verdict OnPush(const PushFacts& push) override {
    return {scale_, /*commit=*/true, /*commit_scale=*/1};
  }
  std::optional<float> CommitDue() override { return std::nullopt; }
  bool MayRead(MemberId member, Exchange after) const override { return true; }
  Exchange Collecting() const override { return Exchange(0); }
  std::vector<MemberId> WaitsFor() const override { return {}; }

 private:
  const float scale_;
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeNone(float scale) { return std::make_unique<None>(scale); }

}  // namespace tessera
