#include "common/consistency/ssp.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// How many members stand at each clock.
class Clocks {
 public:
  void Add(uint64_t clock) { ++count_[clock]; }
  void Remove(uint64_t clock) {
    const auto found = count_.find(clock);
    if (--found->second == 0) count_.erase(found);
  }
  void Clear() { count_.clear(); }
  bool empty() const { return count_.empty(); }
  uint64_t least() const { return count_.begin()->first; }
  uint64_t most() const { return count_.rbegin()->first; }

 private:
  std::map<uint64_t, int64_t> count_;
};

class Ssp final : public ConsistencyPolicy {
 public:
  Ssp(int64_t bound, float weight) : bound_(bound), weight_(weight) { TESSERA_CHECK(bound >= 0); }

  void SetMembers(const Plan& plan) override {
    const auto before = std::exchange(members_, {});
    all_.Clear();
    awake_.Clear();
    for (const PlanMember& m : plan.members) {
      // Members of the last plan keep their clocks, whatever their ranks are now.
      const auto known = before.find(m.member);
      // A new member's clock is just before its first exchange, so that it holds nobody back.
      const Member& member = members_[m.member] =
          known != before.end() ? known->second : Member{m.first_exchange.value() - 1, false};
      all_.Add(member.clock);
      if (!member.resting) awake_.Add(member.clock);
    }
  }

  // Pushes count in whatever order they come.
  std::optional<MemberId> NextInOrder() const override { return std::nullopt; }

  Verdict OnPush(const PushFacts& push) override {
    const auto found = members_.find(push.member);
    TESSERA_CHECK(found != members_.end());
    Member& member = found->second;
    all_.Remove(member.clock);
    if (!member.resting) awake_.Remove(member.clock);
    // A member that pushes is awake, whatever it said before.
    member = {push.exchange.value(), /*resting=*/false};
    all_.Add(member.clock);
    awake_.Add(member.clock);
    // Each push is an update of its own (Ho et al., 2013).
    return {weight_, /*commit=*/true, /*commit_scale=*/1};
  }

  // Nothing is collected, so no time can run out.
  std::optional<float> CommitDue(absl::Time now) override { return std::nullopt; }

  void SetResting(MemberId id, bool resting) override {
    const auto found = members_.find(id);
    if (found == members_.end() || found->second.resting == resting) return;
    // A resting member makes no pushes until it wakes; counting it would stop all others at the bound.
    Member& member = found->second;
    member.resting = resting;
    if (resting) {
      awake_.Remove(member.clock);
    } else {
      awake_.Add(member.clock);
    }
  }

  Exchange FirstExchange(Exchange wanted) const override {
    // A newcomer begins behind the slowest, or all that wait for the slowest would wait for it as well.
    const Clocks& clocks = awake_.empty() ? all_ : awake_;
    if (clocks.empty()) return wanted;
    return std::max(wanted, Exchange(clocks.least() + 1));
  }

  bool MayRead(MemberId member, Exchange after) const override {
    // The reader has its own clock to go by, which is `after`, where nobody else is awake.
    return awake_.empty() || after.value() <= awake_.least() + bound_;
  }

  // No exchange is collected: 0 says so.
  Exchange Collecting() const override { return Exchange(0); }

  std::vector<MemberId> WaitsFor() const override {
    std::vector<MemberId> slowest;
    // Nobody waits while the fastest is within the bound of the slowest.
    if (awake_.empty() || all_.most() <= awake_.least() + bound_) return slowest;
    for (const auto& [id, member] : members_) {
      if (!member.resting && member.clock == awake_.least()) slowest.push_back(id);
    }
    // By number, so that a report reads the same each time.
    std::sort(slowest.begin(), slowest.end());
    return slowest;
  }

  PolicyState State() override {
    PolicyState state;
    // Whether a member rests stands with the shard's members.
    for (const auto& [id, member] : members_) state.members[id] = member.clock;
    return state;
  }
  void SetState(const PolicyState& state) override {
    for (const auto& [id, clock] : state.members) {
      const auto found = members_.find(id);
      // Members that have left since need no clock.
      if (found == members_.end()) continue;
      Member& member = found->second;
      all_.Remove(member.clock);
      if (!member.resting) awake_.Remove(member.clock);
      member.clock = clock;
      all_.Add(clock);
      if (!member.resting) awake_.Add(clock);
    }
  }

 private:
  struct Member {
    uint64_t clock = 0;
    bool resting = false;
  };

  const uint64_t bound_;
  const float weight_;
  absl::flat_hash_map<MemberId, Member> members_;
  Clocks all_;
  Clocks awake_;  // of those that do not rest
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeSsp(int64_t bound, float weight) {
  return std::make_unique<Ssp>(bound, weight);
}

}  // namespace tessera
