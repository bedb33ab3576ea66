#include "common/consistency/barrier.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "common/base/check.h"
#include "common/consistency/example_mean.h"

namespace tessera {
namespace {

class Barrier final : public ConsistencyPolicy {
 public:
  explicit Barrier(bool by_examples) : by_examples_(by_examples) {}

  void SetMembers(const Plan& plan) override {
    // Which of the members are folded already is kept by id, as their places change with the plan.
    absl::flat_hash_set<MemberId> folded;
    for (size_t i = 0; i < plan_.members.size(); ++i) {
      if (is_folded_[i]) folded.insert(plan_.members[i].member);
    }
    plan_ = plan;
    is_folded_.assign(plan_.members.size(), false);
    for (size_t i = 0; i < plan_.members.size(); ++i) {
      is_folded_[i] = folded.contains(plan_.members[i].member);
    }
    // A removed member's push that was folded stays in the sum; only who is still missing changes.
    Collect();
  }

  std::optional<MemberId> NextInOrder() const override {
    // While nobody is expected an impossible member is named, so that nothing is folded out of order.
    return AllIn() ? MemberId(0) : plan_.members[next_in_order_].member;
  }

  Verdict OnPush(const PushFacts& push) override {
    TESSERA_CHECK(push.exchange == collecting_ && push.member == *NextInOrder());
    Verdict verdict;
    // The mean is of examples or of pushes: weights are those of ExampleMean, and the scale of the commit divides.
    verdict.weight = mean_.Add(by_examples_ ? push.examples : 1);
    ++folded_count_;
    is_folded_[next_in_order_] = true;
    PassFolded();
    if (!AllIn()) return verdict;
    verdict.commit = true;
    verdict.commit_scale = Finish();
    return verdict;
  }

  std::optional<float> CommitDue(absl::Time now) override {
    // Folded pushes whose exchange lacks nobody any more, because a member was removed, are committed.
    if (folded_count_ == 0 || !AllIn()) return std::nullopt;
    return Finish();
  }

  bool MayRead(MemberId member, Exchange after) const override { return after < collecting_; }

  Exchange Collecting() const override { return collecting_; }

  // The exchange being collected may be folded in part already; the one after it is untouched.
  Exchange FirstExchange(Exchange wanted) const override {
    return wanted > collecting_ ? wanted : Exchange(collecting_.value() + 2);
  }

  std::vector<MemberId> WaitsFor() const override {
    std::vector<MemberId> missing;
    for (size_t i = next_in_order_; i < plan_.members.size(); ++i) {
      if (Missing(i)) missing.push_back(plan_.members[i].member);
    }
    return missing;
  }

  PolicyState State() override { return {next_, {}, {}}; }
  void SetState(const PolicyState& state) override {
    next_ = state.next;
    Collect();
  }

 private:
  bool Missing(size_t i) const {
    return plan_.members[i].first_exchange <= collecting_ && !is_folded_[i];
  }

  bool AllIn() const { return next_in_order_ == plan_.members.size(); }

  void PassFolded() {
    while (!AllIn() && !Missing(next_in_order_)) ++next_in_order_;
  }

  float Finish() {
    folded_count_ = 0;
    is_folded_.assign(plan_.members.size(), false);
    next_ = collecting_.Next();
    Collect();
    return mean_.Finish();
  }

  // Sets what is collected, and from whom. Exchanges that no member takes part in (all left before
  // the next one begins) are nobody's to fill, until a plan has a member that was promised one of
  // them.
  void Collect() {
    if (folded_count_ == 0) {
      collecting_ = next_;
      if (!plan_.members.empty()) {
        Exchange earliest = plan_.members.front().first_exchange;
        for (const PlanMember& m : plan_.members) earliest = std::min(earliest, m.first_exchange);
        collecting_ = std::max(next_, earliest);
      }
    }
    next_in_order_ = 0;
    PassFolded();
  }

  const bool by_examples_;
  Plan plan_;
  // For each member, by its place in the plan: whether its push of collecting_ is in pending.
  std::vector<bool> is_folded_;
  // The first place in the plan whose push is missing; the plan's end when none is.
  size_t next_in_order_ = 0;
  Exchange next_{1};  // after the last committed one
  Exchange collecting_{1};
  int64_t folded_count_ = 0;  // also of members that were removed since
  ExampleMean mean_;
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeBarrier() { return std::make_unique<Barrier>(false); }

std::unique_ptr<ConsistencyPolicy> MakeWeightedBarrier() { return std::make_unique<Barrier>(true); }

}  // namespace tessera
