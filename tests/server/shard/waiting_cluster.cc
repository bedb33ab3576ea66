#include "tests/server/shard/waiting_cluster.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/consistency/forwarding_policy.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

// Counts clocks by itself, and objects to a read that is further ahead than `bound`.
class Watched final : public ForwardingPolicy {
 public:
  Watched(std::unique_ptr<ConsistencyPolicy> policy, uint64_t bound, std::string* violation)
      : ForwardingPolicy(std::move(policy)), bound_(bound), violation_(*violation) {}

  void SetMembers(const Plan& plan) override {
    std::map<MemberId, Clock> clocks;
    for (const PlanMember& m : plan.members) {
      const auto known = clocks_.find(m.member);
      clocks[m.member] =
          known == clocks_.end() ? Clock{m.first_exchange.value() - 1, true} : known->second;
    }
    clocks_ = clocks;
    ForwardingPolicy::SetMembers(plan);
  }
  Verdict OnPush(const PushFacts& push) override {
    clocks_[push.member] = {push.exchange.value(), true};
    const Verdict verdict = ForwardingPolicy::OnPush(push);
    pending = verdict.commit ? 0 : pending + 1;
    return verdict;
  }
  std::optional<float> CommitDue(absl::Time now) override {
    const std::optional<float> due = ForwardingPolicy::CommitDue(now);
    if (due.has_value() && pending == 0) violation_ = "a commit of nothing";
    if (due.has_value()) pending = 0;
    return due;
  }
  void SetResting(MemberId member, bool resting) override {
    if (const auto found = clocks_.find(member); found != clocks_.end()) {
      found->second.awake = !resting;
    }
    ForwardingPolicy::SetResting(member, resting);
  }
  bool MayRead(MemberId member, Exchange after) const override {
    if (!ForwardingPolicy::MayRead(member, after)) return false;
    for (const auto& [other, clock] : clocks_) {
      if (clock.awake && after.value() > clock.exchange + bound_) {
        violation_ = absl::StrCat("member ", member.value(), " reads after ", after.value(), ", ",
                                  other.value(), " is at ", clock.exchange);
      }
    }
    return true;
  }

  int pending = 0;  // pushes

 private:
  struct Clock {
    uint64_t exchange = 0;
    bool awake = true;
  };
  const uint64_t bound_;
  std::string& violation_;
  std::map<MemberId, Clock> clocks_;
};

class Cluster {
 public:
  Cluster(uint64_t seed, const ClusterOptions& options) : random_(seed) {
    const int count = 1 + Below(3);
    for (int s = 0; s < count; ++s) {
      auto policy = std::make_unique<Watched>(options.policy(), options.bound, &violation_);
      shards_.push_back(std::make_unique<OneShard>(std::move(policy)));
    }
    legs_ = 1 + Below(3);
    joiners_ = Below(3);
    crashes_ = Below(3);
    const uint64_t workers = 1 + Below(4);
    for (uint64_t i = 0; i < workers; ++i) {
      workers_[++last_id_].first = 1;
      planned_.insert(last_id_);
    }
    SendPlan();
    admit_ = planned_;
  }

  // What went wrong; empty: nothing.
  std::string Run() {
    for (int step = 0; violation_.empty(); ++step) {
      if (step > 100000) return "it does not end";
      if (Below(50) == 0) PassTime(absl::Seconds(1));
      if (Below(40) == 0) StartJoin();
      if (Below(60) == 0) Crash();
      if (Deliver()) continue;
      if (Finished()) return violation_;
      if (!WaitForDeadline()) return absl::StrCat("wait for ever: ", Waiting());
    }
    return violation_;
  }

 private:
  struct OneShard {
    explicit OneShard(std::unique_ptr<Watched> watched)
        : policy(watched.get()), fixture(ZeroMatrix(1, 1), std::move(watched), MakeAdd()) {}
    Watched* policy;
    ShardFixture fixture;
    std::deque<std::function<void()>> from_coordinator;
    std::vector<std::pair<uint64_t, uint64_t>> parked;  // reads: worker, after
    uint64_t applied = 0;
    uint64_t proposed = 0;
  };
  struct Worker {
    uint64_t first = 0;
    uint64_t exchange = 0;
    int open_reads = 0;  // shards that have not answered
    int open_pushes = 0;
    uint64_t leg_left = 0;
    IdleNotice rest;       // the last word that it sent
    bool arrived = false;  // at the evaluation
    int outside = 0;       // reads outside that are not answered
    bool done = false;
  };

  uint64_t Below(uint64_t end) { return random_() % end; }
  bool Live(uint64_t id) const { return workers_.count(id) > 0; }

  // --- messages ---

  void Send(std::function<void()> message) { under_way_.push_back(std::move(message)); }

  bool Deliver() {
    std::vector<OneShard*> plans;
    for (const auto& shard : shards_) {
      if (!shard->from_coordinator.empty()) plans.push_back(shard.get());
    }
    const size_t count = under_way_.size() + plans.size();
    if (count == 0) return false;
    const size_t which = Below(count);
    if (which < under_way_.size()) {
      std::swap(under_way_[which], under_way_.back());
      const std::function<void()> message = std::move(under_way_.back());
      under_way_.pop_back();
      message();
    } else {
      OneShard& shard = *plans[which - under_way_.size()];
      const std::function<void()> message = std::move(shard.from_coordinator.front());
      shard.from_coordinator.pop_front();
      message();
      Serve(&shard);
    }
    return true;
  }

  // The shard does what is due and answers whom it can.
  void Serve(OneShard* shard) {
    shard->fixture.now = now_;
    shard->fixture.Settle();
    for (size_t i = 0; i < shard->parked.size();) {
      const auto [id, after] = shard->parked[i];
      const auto answer = shard->fixture.Read(id, after);
      if (answer.ok() && !answer->has_value()) {
        ++i;
        continue;
      }
      shard->parked.erase(shard->parked.begin() + i);
      if (answer.ok() && Live(id)) {
        --workers_[id].open_reads;
        Step(id);
      }
    }
  }

  // --- workers ---

  void Begin(uint64_t id) {
    Worker& w = workers_[id];
    w.exchange = w.first - 1;
    w.leg_left = 1 + Below(6);
    SendReads(id);
  }

  void SendReads(uint64_t id) {
    Worker& w = workers_[id];
    w.open_reads = shards_.size();
    const Exchange after(w.exchange);
    for (const auto& owner : shards_) {
      OneShard* const shard = owner.get();
      Send([this, shard, id, after, word = w.rest] {
        if (word.rests) shard->fixture.shard.Rest(MemberId(id), after, word);
        shard->parked.push_back({id, after.value()});
        Serve(shard);
      });
      // The same word once more, from a call that was given up: it may come much later.
      if (w.rest.rests && Below(4) == 0) {
        Send([this, shard, id, after, word = w.rest] {
          shard->fixture.shard.Rest(MemberId(id), after, word);
          Serve(shard);
        });
      }
    }
  }

  void SendPushes(uint64_t id) {
    Worker& w = workers_[id];
    ++w.exchange;
    if (--w.leg_left == 0) w.rest = {w.rest.number + 1, true};
    w.open_pushes = shards_.size();
    for (const auto& owner : shards_) {
      OneShard* const shard = owner.get();
      const bool twice = Below(10) == 0;
      for (int copy = 0; copy < 1 + twice; ++copy) {
        Send([this, shard, id, exchange = w.exchange, first_copy = copy == 0] {
          (void)shard->fixture.Send(id, exchange, {1.0f});
          Serve(shard);
          if (first_copy && Live(id)) {
            --workers_[id].open_pushes;
            Step(id);
          }
        });
      }
    }
    SendReads(id);
  }

  // All answers may be in: what does the worker do next?
  void Step(uint64_t id) {
    Worker& w = workers_[id];
    if (w.open_reads > 0 || w.open_pushes > 0 || w.arrived || w.done) return;
    if (!w.rest.rests) return SendPushes(id);
    w.arrived = true;
    Evaluate();
  }

  // Once all have arrived, and all shards know who they are, each reads outside and goes on.
  void Evaluate() {
    if (!PlanIsEverywhere()) return;
    for (const auto& [id, w] : workers_) {
      if (planned_.count(id) > 0 && (!w.arrived || w.outside > 0)) return;
    }
    // Everything that was pushed is in the parameters.
    for (const auto& shard : shards_) {
      if (shard->policy->pending != 0) violation_ = "an evaluation does not see all pushes";
    }
    --legs_;
    for (auto& [id, w] : workers_) {
      if (planned_.count(id) == 0) continue;
      w.outside = shards_.size();
      w.rest.rests = false;
      for (const auto& owner : shards_) {
        OneShard* const shard = owner.get();
        Send([this, shard, id = id, after = Exchange(w.exchange), word = w.rest] {
          shard->fixture.shard.Rest(MemberId(id), after, word);
          Serve(shard);
          if (!Live(id) || --workers_[id].outside > 0) return;
          GoOn(id);
        });
      }
    }
  }

  void GoOn(uint64_t id) {
    Worker& w = workers_[id];
    w.arrived = false;
    w.leg_left = 1 + Below(6);
    if (legs_ > 0) return SendPushes(id);
    w.done = true;
    // It leaves some time later.
    Send([this, id] { Remove(id); });
  }

  // --- the coordinator ---

  void SendPlan() {
    ++generation_;
    Plan plan;
    plan.generation = Generation(generation_);
    for (const uint64_t id : planned_) {
      plan.members.push_back({MemberId(id), Rank(id), Exchange(workers_[id].first)});
    }
    for (const auto& owner : shards_) {
      OneShard* const shard = owner.get();
      shard->from_coordinator.push_back([this, shard, plan] {
        shard->fixture.shard.SetPlan(plan);
        shard->applied = plan.generation.value();
        AfterPlan(shard);
      });
    }
  }

  bool PlanIsEverywhere() const {
    return std::all_of(shards_.begin(), shards_.end(),
                       [this](const auto& shard) { return shard->applied == generation_; });
  }

  // All shards have the plan: its new members begin. The others may have waited for a lost one.
  void AfterPlan(OneShard* shard) {
    Serve(shard);
    if (!PlanIsEverywhere()) return;
    for (const uint64_t id : std::exchange(admit_, {})) Begin(id);
    if (!planned_.empty()) Evaluate();
  }

  void StartJoin() {
    if (joiners_ == 0 || joining_ || planned_.empty() || legs_ <= 1) return;
    --joiners_;
    joining_ = true;
    uint64_t least = kNoBound;
    for (const uint64_t id : planned_) least = std::min(least, workers_[id].exchange + 1);
    Propose(least);
  }

  void Propose(uint64_t wanted) {
    const uint64_t number = ++last_proposal_;
    for (const auto& owner : shards_) {
      OneShard* const shard = owner.get();
      shard->from_coordinator.push_back([this, shard, number, wanted] {
        shard->proposed = shard->fixture.shard.Propose(number, Exchange(wanted)).value();
        if (++replies_ < static_cast<int>(shards_.size())) return;
        replies_ = 0;
        uint64_t agreed = 0;
        bool same = true;
        for (const auto& each : shards_) {
          same = same && each->proposed == wanted;
          agreed = std::max(agreed, each->proposed);
        }
        if (!same) return Propose(agreed);
        joining_ = false;
        if (planned_.empty() || legs_ <= 1) return;
        workers_[++last_id_].first = agreed;
        planned_.insert(last_id_);
        admit_.insert(last_id_);
        SendPlan();
      });
    }
  }

  void Crash() {
    if (crashes_ == 0 || planned_.empty()) return;
    --crashes_;
    auto victim = planned_.begin();
    std::advance(victim, Below(planned_.size()));
    Remove(*victim);
  }

  void Remove(uint64_t id) {
    if (!Live(id)) return;
    workers_.erase(id);
    planned_.erase(id);
    admit_.erase(id);
    SendPlan();
  }

  // --- time and the end ---

  void PassTime(absl::Duration duration) {
    now_ += duration;
    for (const auto& shard : shards_) Serve(shard.get());
  }

  bool WaitForDeadline() {
    absl::Time earliest = absl::InfiniteFuture();
    for (const auto& shard : shards_) {
      earliest = std::min(earliest, shard->fixture.shard.Deadline().value_or(earliest));
    }
    if (earliest == absl::InfiniteFuture() || earliest <= now_) return false;
    PassTime(earliest - now_);
    return true;
  }

  bool Finished() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& w) { return w.second.done; });
  }

  std::string Waiting() const {
    std::string text;
    for (const auto& [id, w] : workers_) {
      absl::StrAppend(&text, id, " at ", w.exchange, w.arrived ? " arrived" : "", " reads ",
                      w.open_reads, "; ");
    }
    return text;
  }

  std::mt19937_64 random_;
  std::string violation_;
  std::vector<std::unique_ptr<OneShard>> shards_;
  std::vector<std::function<void()>> under_way_;
  std::map<uint64_t, Worker> workers_;  // that live
  std::set<uint64_t> planned_;          // of those, in the last plan
  std::set<uint64_t> admit_;            // of those, not told yet
  uint64_t last_id_ = 0;
  uint64_t generation_ = 0;
  uint64_t last_proposal_ = 0;
  int replies_ = 0;
  bool joining_ = false;
  int64_t legs_ = 1;
  int joiners_ = 0;
  int crashes_ = 0;
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace

std::string RunCluster(uint64_t seed, const ClusterOptions& options) {
  return Cluster(seed, options).Run();
}

}  // namespace tessera
