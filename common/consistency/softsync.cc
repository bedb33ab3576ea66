#include "common/consistency/softsync.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"

namespace tessera {
namespace {

class Softsync final : public ConsistencyPolicy {
 public:
  Softsync(int64_t pushes, StalenessWeight weight) : pushes_(pushes), weight_(weight) {
    TESSERA_CHECK(pushes >= 1);
  }

  void SetMembers(const Plan& plan) override {
    const auto before = std::exchange(rests_, {});
    awake_ = 0;
    for (const PlanMember& m : plan.members) {
      const auto found = before.find(m.member);
      // Whether a member rests before an evaluation is known from before; a new plan does not say.
      const bool rests = found != before.end() && found->second;
      rests_[m.member] = rests;
      awake_ += !rests;
    }
  }

  std::optional<MemberId> NextInOrder() const override { return std::nullopt; }

  Verdict OnPush(const PushFacts& push) override {
    SetResting(push.member, false);
    ++folded_;
    Verdict verdict;
    // The version's lag behind the pull sets the weight: Zhang et al. (IJCAI 2016) divide the step by it.
    verdict.weight = weight_(push.now.value() - push.base.value());
    verdict.commit = folded_ >= Enough();
    if (verdict.commit) verdict.commit_scale = Finish();
    return verdict;
  }

  std::optional<float> CommitDue(absl::Time now) override {
    // With fewer pushes than enough, a commit is due only where nobody awake could bring another one.
    if (folded_ == 0 || (folded_ < Enough() && awake_ > 0)) return std::nullopt;
    return Finish();
  }

  void SetResting(MemberId member, bool resting) override {
    const auto found = rests_.find(member);
    if (found == rests_.end() || found->second == resting) return;
    found->second = resting;
    awake_ += resting ? -1 : 1;
  }

  bool MayRead(MemberId member, Exchange after) const override { return true; }
  Exchange Collecting() const override { return Exchange(0); }
  std::vector<MemberId> WaitsFor() const override { return {}; }

 private:
  // No more than the members there are, or the update would never be complete.
  int64_t Enough() const { return std::max<int64_t>(1, std::min<int64_t>(pushes_, rests_.size())); }

  float Finish() { return 1.0f / static_cast<float>(std::exchange(folded_, 0)); }

  const int64_t pushes_;
  const StalenessWeight weight_;
  absl::flat_hash_map<MemberId, bool> rests_;  // of the live members
  int64_t awake_ = 0;
  int64_t folded_ = 0;  // pushes in pending
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeSoftsync(int64_t pushes, StalenessWeight weight) {
  return std::make_unique<Softsync>(pushes, weight);
}

}  // namespace tessera
