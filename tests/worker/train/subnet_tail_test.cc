// Jobs of subnets that end on the whole model, held to a reference in one thread.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "tests/worker/train/subnet_reference.h"
#include "tests/worker/train/subnet_workers.h"

namespace tessera {
namespace {

v1::Job TailJob(const std::vector<std::string>& overrides, int servers, int workers, int steps) {
  std::vector<std::string> all = {
      "model.layers=[linear: {units: 17}, batch_norm: {}, relu: {}, linear: {units: 13, bias: "
      "false}, batch_norm: {}, relu: {}, linear: {units: 10, bias: false}, batch_norm: {affine: "
      "false}]"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  v1::Job job = SubnetJob(all, servers, workers);
  job.mutable_method()->mutable_ist()->set_tail_steps(steps);
  return job;
}

const char* const kMomentum =
    "train.optimizer={sgd: {learning_rate: 0.02, momentum: 0.9, weight_decay: 0.01}}";

TEST_CASE(
    "a tail on the whole model equals a reference in one thread to the bit, and moves what it "
    "must",
    "[subnet][train][tail]") {
  const int workers = GENERATE(1, 2, 3);
  const int servers = GENERATE(1, 3);
  const std::string optimizer = GENERATE(as<std::string>{}, "seed=9", kMomentum);
  CAPTURE(workers, servers, optimizer);
  // 33, 26 and 19 steps are left after the first rounds, 12 after the fourth.
  const v1::Job job = TailJob({"train.steps=40", optimizer}, servers, workers, GENERATE(12, 18));
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), servers, workers);
  const auto ran = Train(job, &data, &cluster, workers);

  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, workers, backend.get());
  const std::vector<bool> all(workers, true);
  for (uint64_t round = 1; round <= 4; ++round) reference.Round(round, 7 * (round - 1), 7, all);
  reference.Whole(28, 7, all);
  reference.Whole(35, 5, all);
  CHECK(cluster.Parameters() == reference.Parameters());

  const auto dense = static_cast<uint64_t>(cluster.shape().size);
  for (int site = 0; site < workers; ++site) {
    uint64_t floats = 0;
    for (uint64_t round = 1; round <= 4; ++round) {
      floats += reference.SubnetSize(round, workers, site);
    }
    const Traffic traffic = ran[site]->client.traffic();
    CHECK(traffic.push_payload_bytes == 4 * (floats + 2 * dense));
    CHECK(traffic.pull_payload_bytes == 4 * (floats + 3 * dense));
    CHECK(traffic.exchanges == 6);
    CHECK(ran[site]->coordination.last_progress.speed_steps == 0);
  }
}

TEST_CASE("with one site, a tail of plain sgd goes on as local training does, to the bit",
          "[subnet][train][tail]") {
  const v1::Job job = TailJob({"train.steps=20"}, 2, 1, 7);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 1);
  const auto tailed = Train(job, &data, &cluster, 1);
  // Two rounds, and one exchange of the whole model, whose sum on the servers is rounded.
  CHECK(tailed[0]->client.traffic().exchanges == 3);
  v1::Job local = job;
  local.mutable_method()->mutable_local_sgd()->set_local_steps(1000);
  InProcessServers local_cluster(local, *RecipeFor(local), 2, 1);
  const auto ran = Train(local, &data, &local_cluster, 1);
  CHECK(tailed[0]->keeping.trained == ran[0]->keeping.trained);
}

TEST_CASE("where epochs count, the tail is what is left of this one and the later ones",
          "[subnet][train][tail]") {
  // 56 steps an epoch.
  const int tail = GENERATE(20, 60);
  const v1::Job job =
      TailJob({"train.steps=0", "train.epochs=2", "train.evaluate_every=1"}, 2, 2, tail);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 2);
  const auto ran = Train(job, &data, &cluster, 2);
  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, 2, backend.get());
  const uint64_t rounds = tail == 20 ? 14 : 8;
  uint64_t exchange = 0;
  for (; exchange < rounds; ++exchange) {
    reference.Round(exchange + 1, 7 * exchange, 7, {true, true});
  }
  for (; exchange < 16; ++exchange) reference.Whole(7 * exchange, 7, {true, true});
  CHECK(cluster.Parameters() == reference.Parameters());
  CHECK(ran[0]->coordination.scores.size() == 2);
}

TEST_CASE("a worker that dies at the switch, or after it, is left out from then on",
          "[subnet][train][tail]") {
  const uint64_t dies_at = GENERATE(4, 5, 6);
  CAPTURE(dies_at);
  const v1::Job job = TailJob({"train.steps=49", kMomentum}, 2, 3, 21);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 3);
  Worker first(job, &data, &cluster, 0, 3), second(job, &data, &cluster, 1, 3);
  Worker lost(job, &data, &cluster, 2, 3);
  lost.keeping.dies_at = Exchange(dies_at);
  for (Worker* worker : {&first, &second, &lost}) worker->Start();
  lost.thread.join();
  CHECK(lost.status.message() == "died");
  Plan plan;
  plan.generation = Generation(2);
  plan.members = {{MemberId(1), Rank(0), Exchange(1)}, {MemberId(2), Rank(1), Exchange(1)}};
  plan.departed = {{MemberId(3), Rank(2), Exchange(1), Exchange(0)}};
  cluster.SetPlan(plan);
  first.Join();
  second.Join();

  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, 3, backend.get());
  for (uint64_t exchange = 1; exchange <= 7; ++exchange) {
    const std::vector<bool> returns = {true, true, exchange < dies_at};
    if (exchange <= 4) {
      reference.Round(exchange, 7 * (exchange - 1), 7, returns);
    } else {
      reference.Whole(7 * (exchange - 1), 7, returns);
    }
  }
  CHECK(cluster.Parameters() == reference.Parameters());
}

TEST_CASE("a worker that joins in the tail begins in it, and one before it changes with the others",
          "[subnet][train][tail]") {
  const uint64_t first = GENERATE(3, 4, 5, 6, 7);
  CAPTURE(first);
  // Exchanges 5 to 7 are of the whole model.
  const v1::Job job = TailJob({"train.steps=49"}, 2, 2, 21);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 2);
  Plan plan;
  plan.generation = Generation(2);
  plan.members = {{MemberId(1), Rank(0), Exchange(1)},
                  {MemberId(2), Rank(1), Exchange(1)},
                  {MemberId(3), Rank(2), Exchange(first)}};
  cluster.SetPlan(plan);
  Worker one(job, &data, &cluster, 0, 2), two(job, &data, &cluster, 1, 2);
  Worker late(job, &data, &cluster, 2, 3, Exchange(first), 7 * (first - 1));
  for (Worker* worker : {&one, &two, &late}) worker->Start();
  for (Worker* worker : {&one, &two, &late}) worker->Join();
  const Traffic traffic = late.client.traffic();
  CHECK(traffic.exchanges == 8 - first);
  const auto dense = static_cast<uint64_t>(4 * cluster.shape().size);
  if (first >= 5) {
    CHECK(traffic.push_payload_bytes == (8 - first) * dense);
    CHECK(traffic.pull_payload_bytes == (9 - first) * dense);
  } else {
    CHECK(traffic.push_payload_bytes > 3 * dense);
    CHECK(traffic.push_payload_bytes < 4 * dense);
  }
  // All have the same model at the end.
  const auto values = [](const Worker& worker) {
    std::vector<float> all;
    for (const auto& array : worker.learner->values()) {
      all.insert(all.end(), array.begin(), array.end());
    }
    return all;
  };
  CHECK(values(one) == cluster.Parameters());
  CHECK(values(late) == cluster.Parameters());
}

TEST_CASE("a tail learns, and evaluations in between disturb nothing", "[subnet][train][tail]") {
  const v1::Job job = TailJob(
      {"train.steps=224", "train.evaluate_every=1",
       "model.layers=[linear: {units: 64}, batch_norm: {}, relu: {}, linear: {units: 32}, "
       "batch_norm: {}, relu: {}, linear: {units: 10, bias: false}, batch_norm: {affine: false}]"},
      2, 2, 90);
  v1::Job at_end = job;
  at_end.mutable_train()->set_evaluate_every(0);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 2);
  const auto ran = Train(job, &data, &cluster, 2);
  for (const auto& worker : ran) {
    CHECK(worker->coordination.scores.size() > 3);
    CHECK(worker->coordination.scores.back().correct > 400);  // of 450
  }
  InProcessServers other(at_end, *RecipeFor(at_end), 2, 2);
  Train(at_end, &data, &other, 2);
  CHECK(other.Parameters() == cluster.Parameters());
}

TEST_CASE("a tail follows subnets that have no memory apart, and that are evaluated in blocks",
          "[subnet][train][tail]") {
  v1::Job job = TailJob({"train.steps=0", "train.epochs=2", "train.evaluate_every=1"}, 2, 2, 20);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 2);
  Train(job, &data, &cluster, 2);
  job.mutable_cluster()->set_memory_limit(1);
  InProcessServers other(job, *RecipeFor(job), 2, 2);
  const auto ran = Train(job, &data, &other, 2);
  CHECK(ran[0]->coordination.scores.size() == 2);
  CHECK(other.Parameters() == cluster.Parameters());
}

TEST_CASE("servers that speak of a tail in a job without one are not followed",
          "[subnet][train][tail]") {
  const v1::Job job = TailJob({"train.steps=49"}, 1, 1, 21);
  v1::Job without = job;
  without.mutable_method()->mutable_ist()->set_tail_steps(0);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 1, 1);
  Worker tailed(job, &data, &cluster, 0, 1);
  tailed.keeping.dies_at = Exchange(6);
  tailed.Start();
  tailed.thread.join();
  Plan plan;
  plan.generation = Generation(2);
  plan.members = {{MemberId(2), Rank(1), Exchange(7)}};
  cluster.SetPlan(plan);
  Worker other(without, &data, &cluster, 1, 2, Exchange(7), 42);
  other.Start();
  other.thread.join();
  CHECK(other.status.message() ==
        "round 7: servers say that it is of the whole model, want subnets to the end of this job");
}

}  // namespace
}  // namespace tessera
