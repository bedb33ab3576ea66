#include "common/consistency/barrier.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
namespace {

class Barrier final : public ConsistencyPolicy {
 public:
  void SetMembers(const Plan& plan) override {
    plan_ = plan;
    Collect();
  }

  std::optional<MemberId> NextInOrder() const override {
    for (const PlanMember& m : plan_.members) {
      if (Expected(m) && !Folded(m.member)) return m.member;
    }
    // Nobody is expected now: an impossible member, so that nothing is folded out of order.
    return MemberId(0);
  }

  Verdict OnPush(const PushFacts& push) override {
    TESSERA_CHECK(push.exchange == collecting_);
    folded_.push_back(push.member);
    Verdict verdict;
    if (!WaitsFor().empty()) return verdict;
    verdict.commit = true;
    verdict.commit_scale = Finish();
    return verdict;
  }

  std::optional<float> CommitDue() override {
    if (folded_.empty() || !WaitsFor().empty()) return std::nullopt;
    return Finish();
  }

  bool MayRead(MemberId member, Exchange after) const override { return after < collecting_; }

  Exchange Collecting() const override { return collecting_; }

  std::vector<MemberId> WaitsFor() const override {
    std::vector<MemberId> missing;
    for (const PlanMember& m : plan_.members) {
      if (Expected(m) && !Folded(m.member)) missing.push_back(m.member);
    }
    return missing;
  }

 private:
  bool Expected(const PlanMember& m) const { return m.first_exchange <= collecting_; }

  bool Folded(MemberId member) const {
    return std::find(folded_.begin(), folded_.end(), member) != folded_.end();
  }

  float Finish() {
    const float scale = 1.0f / static_cast<float>(folded_.size());
    folded_.clear();
    next_ = collecting_.Next();
    Collect();
    return scale;
  }

  // Exchanges that no member takes part in (all left before the next one begins) are nobody's to
  // fill, until a plan has a member that was promised one of them.
  void Collect() {
    if (!folded_.empty()) return;
    collecting_ = next_;
    if (plan_.members.empty()) return;
    Exchange earliest = plan_.members.front().first_exchange;
    for (const PlanMember& m : plan_.members) earliest = std::min(earliest, m.first_exchange);
    collecting_ = std::max(next_, earliest);
  }

  Plan plan_;
  Exchange next_{1};  // after the last committed one
  Exchange collecting_{1};
  std::vector<MemberId> folded_;  // members whose push of collecting_ is in pending
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeBarrier() { return std::make_unique<Barrier>(); }

}  // namespace tessera
