#include "tests/common/consistency/naive_policies.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// What all of them remember: everything.
class Remembering : public ConsistencyPolicy {
 public:
  void SetMembers(const Plan& plan) override {
    plan_ = plan;
    for (auto it = resting_.begin(); it != resting_.end();) {
      it = plan.Find(*it) != nullptr ? std::next(it) : resting_.erase(it);
    }
  }
  std::optional<MemberId> NextInOrder() const override { return std::nullopt; }
  void SetResting(MemberId member, bool resting) override {
    if (plan_.Find(member) == nullptr) return;
    if (resting) {
      resting_.insert(member);
    } else {
      resting_.erase(member);
    }
  }
  Exchange Collecting() const override { return Exchange(0); }

 protected:
  struct Folded {
    PushFacts push;
    uint64_t update = 0;  // that it went into
  };

  void Remember(const PushFacts& push) {
    resting_.erase(push.member);
    history_.push_back({push, update_});
  }
  std::vector<PushFacts> Pending() const {
    std::vector<PushFacts> pending;
    for (const Folded& f : history_) {
      if (f.update == update_) pending.push_back(f.push);
    }
    return pending;
  }
  bool IsPending(MemberId member) const {
    const std::vector<PushFacts> pending = Pending();
    return std::any_of(pending.begin(), pending.end(),
                       [&](const PushFacts& p) { return p.member == member; });
  }
  bool Awake(MemberId member) const { return resting_.count(member) == 0; }

  Plan plan_;
  std::set<MemberId> resting_;
  std::vector<Folded> history_;
  uint64_t update_ = 1;  // the one being collected
};

class Softsync final : public Remembering {
 public:
  Softsync(int64_t pushes, StalenessWeight weight) : pushes_(pushes), weight_(weight) {}

  Verdict OnPush(const PushFacts& push) override {
    Remember(push);
    const float weight = weight_(push.now.value() - push.base.value());
    if (!Enough()) return {weight, false, 1};
    return {weight, true, Commit()};
  }
  std::optional<float> CommitDue(absl::Time now) override {
    const bool any_awake = std::any_of(plan_.members.begin(), plan_.members.end(),
                                       [&](const PlanMember& m) { return Awake(m.member); });
    if (Pending().empty() || (!Enough() && any_awake)) return std::nullopt;
    return Commit();
  }
  bool MayRead(MemberId member, Exchange after) const override { return true; }
  std::vector<MemberId> WaitsFor() const override { return {}; }

 private:
  bool Enough() const {
    const int64_t live = plan_.members.size();
    const int64_t pending = Pending().size();
    return pending >= 1 && (pending >= pushes_ || pending >= live);
  }
  float Commit() {
    const float count = Pending().size();
    ++update_;
    return 1 / count;
  }

  const int64_t pushes_;
  const StalenessWeight weight_;
};

class Ssp final : public Remembering {
 public:
  Ssp(int64_t bound, float weight) : bound_(bound), weight_(weight) {}

  Verdict OnPush(const PushFacts& push) override {
    Remember(push);
    return {weight_, true, 1};
  }
  std::optional<float> CommitDue(absl::Time now) override { return std::nullopt; }
  bool MayRead(MemberId member, Exchange after) const override {
    int64_t least = Clock(*plan_.Find(member));
    for (const PlanMember& m : plan_.members) {
      if (Awake(m.member)) least = std::min(least, Clock(m));
    }
    return static_cast<int64_t>(after.value()) - least <= bound_;
  }
  Exchange FirstExchange(Exchange wanted) const override {
    int64_t least = -1;
    for (const bool also_resting : {false, true}) {
      for (const PlanMember& m : plan_.members) {
        if (!also_resting && !Awake(m.member)) continue;
        if (least < 0 || Clock(m) < least) least = Clock(m);
      }
      if (least >= 0) break;
    }
    return std::max(wanted, Exchange(least + 1));
  }
  std::vector<MemberId> WaitsFor() const override {
    std::vector<MemberId> slowest;
    for (const PlanMember& m : plan_.members) {
      if (!Awake(m.member)) continue;
      const auto behind = [&](const PlanMember& o) { return Clock(o) > Clock(m) + bound_; };
      const auto slower = [&](const PlanMember& o) {
        return Awake(o.member) && Clock(o) < Clock(m);
      };
      const auto& all = plan_.members;
      if (std::any_of(all.begin(), all.end(), behind) &&
          std::none_of(all.begin(), all.end(), slower)) {
        slowest.push_back(m.member);
      }
    }
    return slowest;
  }

 private:
  int64_t Clock(const PlanMember& m) const {
    int64_t clock = m.first_exchange.value() - 1;
    for (const Folded& f : history_) {
      if (f.push.member == m.member) clock = f.push.exchange.value();
    }
    return clock;
  }

  const int64_t bound_;
  const float weight_;
};

class Quorum final : public Remembering {
 public:
  Quorum(int64_t pushes, absl::Duration grace) : pushes_(pushes), grace_(grace) {}

  void SetMembers(const Plan& plan) override {
    Remembering::SetMembers(plan);
    if (first_ == 0) {
      for (const PlanMember& m : plan.members) first_ = std::max(first_, m.first_exchange.value());
    }
  }
  Verdict OnPush(const PushFacts& push) override {
    Remember(push);
    const float first = std::max<uint64_t>(1, Pending().front().examples);
    const float weight = std::max<uint64_t>(1, push.examples) / first;
    if (!Closes(push.time)) return {weight, false, 1};
    return {weight, true, Close()};
  }
  std::optional<float> CommitDue(absl::Time now) override {
    if (Pending().empty() || !Closes(now)) return std::nullopt;
    return Close();
  }
  std::optional<absl::Time> Deadline() const override {
    std::set<MemberId> members;
    for (const PushFacts& p : Pending()) {
      members.insert(p.member);
      if (static_cast<int64_t>(members.size()) == pushes_) return p.time + grace_;
    }
    return std::nullopt;
  }
  bool MayRead(MemberId member, Exchange after) const override {
    return !HasPushed(member) || after < Open();
  }
  Exchange FirstExchange(Exchange wanted) const override { return std::max(wanted, Open().Next()); }
  std::vector<MemberId> WaitsFor() const override {
    return Pending().empty() ? std::vector<MemberId>() : Missing();
  }

 private:
  // The exchange that the open round is for: one more than the last round's, and more than all
  // exchanges in closed rounds.
  Exchange Open() const {
    uint64_t open = std::max<uint64_t>(1, first_);
    for (uint64_t round = 1; round < update_; ++round) {
      for (const Folded& f : history_) {
        if (f.update <= round) open = std::max(open, f.push.exchange.value());
      }
      ++open;
    }
    return Exchange(open);
  }
  bool HasPushed(MemberId member) const {
    return std::any_of(history_.begin(), history_.end(),
                       [&](const Folded& f) { return f.push.member == member; });
  }
  std::vector<MemberId> Missing() const {
    std::vector<MemberId> missing;
    for (const PlanMember& m : plan_.members) {
      const bool begun = m.first_exchange <= Open() || HasPushed(m.member);
      if (begun && Awake(m.member) && !IsPending(m.member)) missing.push_back(m.member);
    }
    return missing;
  }
  bool Closes(absl::Time now) const {
    return Missing().empty() || (Deadline().has_value() && now >= *Deadline());
  }
  float Close() {
    float sum = 0;
    const float first = std::max<uint64_t>(1, Pending().front().examples);
    for (const PushFacts& p : Pending()) sum += std::max<uint64_t>(1, p.examples) / first;
    ++update_;
    return 1 / sum;
  }

  const int64_t pushes_;
  const absl::Duration grace_;
  uint64_t first_ = 0;  // the last first exchange of the first plan; 0: there was none
};

class Barrier final : public ConsistencyPolicy {
 public:
  void SetMembers(const Plan& plan) override {
    plan_ = plan;
    Collect();
  }
  std::optional<MemberId> NextInOrder() const override {
    const std::vector<MemberId> missing = WaitsFor();
    return missing.empty() ? MemberId(0) : missing.front();
  }
  Verdict OnPush(const PushFacts& push) override {
    folded_.push_back(push.member);
    Verdict verdict;
    if (!WaitsFor().empty()) return verdict;
    verdict.commit = true;
    verdict.commit_scale = Finish();
    return verdict;
  }
  std::optional<float> CommitDue(absl::Time now) override {
    if (folded_.empty() || !WaitsFor().empty()) return std::nullopt;
    return Finish();
  }
  bool MayRead(MemberId member, Exchange after) const override { return after < collecting_; }
  Exchange Collecting() const override { return collecting_; }
  Exchange FirstExchange(Exchange wanted) const override {
    return wanted > collecting_ ? wanted : Exchange(collecting_.value() + 2);
  }
  std::vector<MemberId> WaitsFor() const override {
    std::vector<MemberId> missing;
    for (const PlanMember& m : plan_.members) {
      if (m.first_exchange <= collecting_ &&
          std::find(folded_.begin(), folded_.end(), m.member) == folded_.end()) {
        missing.push_back(m.member);
      }
    }
    return missing;
  }

 private:
  float Finish() {
    const float scale = 1.0f / static_cast<float>(folded_.size());
    folded_.clear();
    next_ = collecting_.Next();
    Collect();
    return scale;
  }
  void Collect() {
    if (!folded_.empty()) return;
    collecting_ = next_;
    if (plan_.members.empty()) return;
    Exchange earliest = plan_.members.front().first_exchange;
    for (const PlanMember& m : plan_.members) earliest = std::min(earliest, m.first_exchange);
    collecting_ = std::max(next_, earliest);
  }

  Plan plan_;
  Exchange next_{1};
  Exchange collecting_{1};
  std::vector<MemberId> folded_;
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> NaiveBarrier() { return std::make_unique<Barrier>(); }

std::unique_ptr<ConsistencyPolicy> NaiveSoftsync(int64_t pushes, StalenessWeight weight) {
  return std::make_unique<Softsync>(pushes, weight);
}

std::unique_ptr<ConsistencyPolicy> NaiveSsp(int64_t bound, float weight) {
  return std::make_unique<Ssp>(bound, weight);
}

std::unique_ptr<ConsistencyPolicy> NaiveQuorum(int64_t pushes, absl::Duration grace) {
  return std::make_unique<Quorum>(pushes, grace);
}

}  // namespace tessera
