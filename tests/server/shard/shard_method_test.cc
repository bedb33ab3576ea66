// Methods that must give the same parameters, on the shard as their recipes make it.
#include <catch2/catch.hpp>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/method/recipe.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

constexpr int kRows = 3;
constexpr int kColumns = 7;
constexpr int kEntries = kRows * kColumns;

v1::Job JobWith(int workers, double learning_rate, double momentum = 0) {
  v1::Job job;
  job.mutable_cluster()->set_workers(workers);
  v1::Sgd& sgd = *job.mutable_train()->mutable_optimizer()->mutable_sgd();
  sgd.set_learning_rate(learning_rate);
  sgd.set_momentum(momentum);
  return job;
}

// One shard as the job's recipe makes it. Workers are 1, 2, ...
class MethodShard {
 public:
  explicit MethodShard(const v1::Job& job) : shard_(OptionsOf(job)) {
    shard_.SetPlan(PlanOfFirst(job.cluster().workers()));
  }

  void Push(uint64_t member, uint64_t exchange, uint64_t base, const Values& values,
            uint64_t examples = 32) {
    ReceivedPush push;
    push.member = MemberId(member);
    push.exchange = Exchange(exchange);
    push.base = Version(base);
    push.kind = kind_;
    push.layout_hash = shard_.layout_hash();
    push.examples = examples;
    push.payload = PayloadOf(values);
    const absl::StatusOr<PushAccepted> accepted = shard_.Accept(std::move(push));
    INFO(accepted.status());
    REQUIRE(accepted.ok());
    while (shard_.Advance(absl::UnixEpoch())) {
    }
  }
  bool MayRead(uint64_t member, uint64_t after) {
    return shard_.Read(MemberId(member), Exchange(after))->has_value();
  }
  Values Now() { return ValuesOf(*shard_.ReadNow().snapshot); }
  uint64_t version() const { return shard_.counters().version.value(); }

 private:
  Shard::Options OptionsOf(const v1::Job& job) {
    const absl::StatusOr<Recipe> recipe = RecipeFor(job);
    REQUIRE(recipe.ok());
    kind_ = static_cast<int>(recipe->payload);
    Shard::Options options;
    options.shape = ZeroMatrix(kRows, kColumns);
    options.kind = kind_;
    options.policy = recipe->make_policy();
    options.rule = recipe->make_rule();
    options.schedule = recipe->schedule;
    return options;
  }

  int kind_ = 0;
  Shard shard_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t end) { return random_() % end; }
  Values Update() {
    std::normal_distribution<float> normal(0, 1);
    Values values(kEntries);
    for (float& v : values) v = normal(random_);
    return values;
  }

 private:
  std::mt19937_64 random_;
};

// The gradient of worker k's least squares at w.
Values Gradient(uint64_t worker, const Values& w) {
  Values g(kEntries);
  for (int i = 0; i < kEntries; ++i) {
    g[i] = (0.5f + 0.1f * worker) * (w[i] - std::sin(static_cast<float>(i * worker)));
  }
  return g;
}

TEST_CASE("ssp with bound 0 is data_parallel where all pull before any pushes",
          "[shard][ssp][data_parallel]") {
  constexpr float kRate = 0.25f;
  constexpr int kWorkers = 3;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    v1::Job job = JobWith(kWorkers, kRate);
    job.mutable_method()->mutable_data_parallel();
    MethodShard synchronous(job);
    job.mutable_method()->mutable_ssp()->set_local_steps(1);
    MethodShard stale(job);
    Random random(seed);
    for (uint64_t exchange = 1; exchange <= 30; ++exchange) {
      const Values w = synchronous.Now();
      const Values v = stale.Now();
      // In an order of its own each time.
      std::vector<uint64_t> order = {1, 2, 3};
      for (size_t i = 1; i < order.size(); ++i) std::swap(order[i], order[random.Below(i + 1)]);
      for (size_t i = 0; i < order.size(); ++i) {
        const uint64_t worker = order[i];
        synchronous.Push(worker, exchange, exchange - 1, Gradient(worker, w));
        Values delta = Gradient(worker, v);
        for (float& d : delta) d *= -kRate;
        stale.Push(worker, exchange, (exchange - 1) * kWorkers, delta);
        CHECK(stale.MayRead(worker, exchange) == (i + 1 == order.size()));
      }
      for (const uint64_t worker : order) CHECK(stale.MayRead(worker, exchange));
    }
    const Values w = synchronous.Now();
    const Values v = stale.Now();
    for (int i = 0; i < kEntries; ++i) CHECK(v[i] == Approx(w[i]).margin(1e-5));
    CHECK(stale.version() == 90);
    CHECK(synchronous.version() == 30);
  }
}

TEST_CASE("diloco with outer rate 1 and no outer momentum is local_sgd to the bit",
          "[shard][diloco][local_sgd]") {
  for (const uint64_t workers : {1, 2, 3, 5}) {
    v1::Job job = JobWith(workers, 0.1);
    job.mutable_method()->mutable_local_sgd()->set_local_steps(4);
    MethodShard averaged(job);
    v1::Diloco& keys = *job.mutable_method()->mutable_diloco();
    keys.set_local_steps(4);
    keys.set_outer_learning_rate(1);
    MethodShard outer(job);
    Random random(workers);
    for (uint64_t exchange = 1; exchange <= 20; ++exchange) {
      for (uint64_t worker = 1; worker <= workers; ++worker) {
        const Values delta = random.Update();
        averaged.Push(worker, exchange, exchange - 1, delta, 128);
        outer.Push(worker, exchange, exchange - 1, delta, 128);
      }
      REQUIRE(outer.Now() == averaged.Now());
    }
  }
}

TEST_CASE("diloco applies the mean over examples with Nesterov's momentum", "[shard][diloco]") {
  v1::Job job = JobWith(2, 0.1);
  v1::Diloco& keys = *job.mutable_method()->mutable_diloco();
  keys.set_outer_learning_rate(0.5);
  keys.set_outer_momentum(0.5);
  MethodShard shard(job);
  // Deltas of 8 and 4 over 1 and 3 times as many examples: D = -5.
  shard.Push(1, 1, 0, Values(kEntries, 8), 32);
  shard.Push(2, 1, 0, Values(kEntries, 4), 96);
  // m = -5; w = 0 - 0.5 (-5 - 2.5)
  CHECK(shard.Now() == Values(kEntries, 3.75f));
  shard.Push(1, 2, 1, Values(kEntries, 0));
  shard.Push(2, 2, 1, Values(kEntries, 0));
  // D = 0, m = -2.5; w += 0.5 * 1.25
  CHECK(shard.Now() == Values(kEntries, 4.375f));
}

TEST_CASE("diloco with a quorum of all is diloco, to the bit in rank order", "[shard][diloco]") {
  constexpr uint64_t kWorkers = 4;
  v1::Job job = JobWith(kWorkers, 0.1);
  v1::Diloco& keys = *job.mutable_method()->mutable_diloco();
  keys.set_outer_learning_rate(0.7);
  keys.set_outer_momentum(0.9);
  MethodShard all(job);
  keys.mutable_quorum()->set_pushes(kWorkers);
  MethodShard quorum(job);
  Random random(1);
  for (uint64_t exchange = 1; exchange <= 20; ++exchange) {
    for (uint64_t worker = 1; worker <= kWorkers; ++worker) {
      const Values delta = random.Update();
      const uint64_t examples = 1 + random.Below(1000);
      all.Push(worker, exchange, exchange - 1, delta, examples);
      quorum.Push(worker, exchange, exchange - 1, delta, examples);
    }
    REQUIRE(quorum.Now() == all.Now());
  }
}

// Each of the four, for the job's two asynchronous methods.
std::vector<v1::StalenessWeight> Weights() {
  std::vector<v1::StalenessWeight> weights(4);
  weights[0].mutable_constant()->set_scale(1);
  weights[1].mutable_inverse()->set_scale(0.8);
  weights[2].mutable_power()->set_scale(1);
  weights[2].mutable_power()->set_exponent(0.5);
  weights[3].mutable_exponential()->set_scale(1);
  weights[3].mutable_exponential()->set_base(0.9);
  return weights;
}

TEST_CASE("softsync of one push is async_sgd to the bit", "[shard][softsync][async_sgd]") {
  constexpr uint64_t kWorkers = 5;
  for (const int64_t local_steps : {1, 3}) {
    for (const v1::StalenessWeight& weight : Weights()) {
      v1::Job job = JobWith(kWorkers, 0.1, 0.9);
      job.mutable_train()->mutable_schedule()->set_warmup(1000);
      v1::AsyncSgd& at_once = *job.mutable_method()->mutable_async_sgd();
      at_once.set_local_steps(local_steps);
      *at_once.mutable_staleness() = weight;
      MethodShard async(job);
      v1::Softsync& collected = *job.mutable_method()->mutable_softsync();
      collected.set_pushes(1);
      collected.set_local_steps(local_steps);
      *collected.mutable_staleness() = weight;
      MethodShard soft(job);
      Random random(local_steps);
      std::vector<uint64_t> exchanges(kWorkers + 1);
      for (int push = 0; push < 200; ++push) {
        const uint64_t worker = 1 + random.Below(kWorkers);
        const uint64_t exchange = ++exchanges[worker];
        const uint64_t base = async.version() - std::min(async.version(), random.Below(12));
        const Values update = random.Update();
        async.Push(worker, exchange, base, update);
        soft.Push(worker, exchange, base, update);
        REQUIRE(soft.version() == async.version());
        REQUIRE(soft.Now() == async.Now());
      }
    }
  }
}

TEST_CASE("softsync of all is data_parallel where all push once, in rank order",
          "[shard][softsync][data_parallel]") {
  constexpr uint64_t kWorkers = 3;
  v1::Job job = JobWith(kWorkers, 0.1, 0.5);
  job.mutable_method()->mutable_data_parallel();
  MethodShard synchronous(job);
  v1::Softsync& keys = *job.mutable_method()->mutable_softsync();
  keys.set_pushes(kWorkers);
  keys.set_local_steps(1);
  MethodShard soft(job);
  Random random(1);
  for (uint64_t exchange = 1; exchange <= 20; ++exchange) {
    for (uint64_t worker = 1; worker <= kWorkers; ++worker) {
      const Values gradient = random.Update();
      synchronous.Push(worker, exchange, exchange - 1, gradient);
      soft.Push(worker, exchange, exchange - 1, gradient);
    }
    REQUIRE(soft.Now() == synchronous.Now());
  }
}

}  // namespace
}  // namespace tessera
