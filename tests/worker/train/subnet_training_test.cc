// Whole runs of independent subnet training in one process, held to a reference in one thread.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "tests/worker/train/subnet_reference.h"
#include "tests/worker/train/subnet_workers.h"
#include "worker/replica/replica.h"
#include "worker/replica/subnet_memory.h"
#include "worker/replica/subnet_replica.h"

namespace tessera {
namespace {

TEST_CASE("subnet training equals a reference in one thread to the bit, and moves what it must",
          "[subnet][train]") {
  const int workers = GENERATE(1, 2, 3);
  const int servers = GENERATE(1, 3);
  const std::string model = GENERATE(kTwoHidden, kThreeHidden);
  const std::string optimizer =
      GENERATE("train.optimizer={sgd: {learning_rate: 0.05}}",
               "train.optimizer={sgd: {learning_rate: 0.02, momentum: 0.9, weight_decay: 0.01}}",
               // Its steps are counted from each round's first.
               "train.optimizer={adam: {learning_rate: 0.002}}");
  CAPTURE(workers, servers, model, optimizer);
  const v1::Job job = SubnetJob({model, optimizer}, servers, workers);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), servers, workers);
  const std::vector<float> initial = cluster.Parameters();
  const auto ran = Train(job, &data, &cluster, workers);

  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, workers, backend.get());
  REQUIRE(reference.Parameters() == initial);
  // The last round is shorter.
  const std::vector<int64_t> steps = {7, 7, 5};
  for (uint64_t round = 1; round <= 3; ++round) {
    reference.Round(round, 7 * (round - 1), steps[round - 1], std::vector<bool>(workers, true));
  }
  CHECK(cluster.Parameters() == reference.Parameters());

  for (int site = 0; site < workers; ++site) {
    uint64_t floats[5] = {};
    for (uint64_t round = 1; round <= 4; ++round) {
      floats[round] = reference.SubnetSize(round, workers, site);
    }
    const Traffic traffic = ran[site]->client.traffic();
    CHECK(traffic.push_payload_bytes == 4 * (floats[1] + floats[2] + floats[3]));
    CHECK(traffic.pull_payload_bytes == 4 * (floats[1] + floats[2] + floats[3]));
    CHECK(traffic.exchanges == 3);
    CHECK(ran[site]->loop->steps() == 19);
  }
}

// Residual sums of features, of which one has a shortcut of its own, in copies.
constexpr char kResiduals[] =
    "model.layers=[linear: {units: 12}, batch_norm, relu, repeat: {times: 2, layers: ["
    "residual: {layers: [linear: {units: 9, bias: false}, batch_norm, relu, linear: {units: 12}]}, "
    "residual: {layers: [linear: {units: 7}, relu, linear: {units: 12}], "
    "shortcut: [linear: {units: 12}]}]}, relu, linear: {units: 10}]";
// Images: a plain convolution, a block with a concat within it, and one whose sum is what the linear layers read.
constexpr char kImages[] =
    "model={input: [1, 8, 8], layers: [conv2d: {channels: 6, kernel: 3, padding: 1, bias: false}, "
    "batch_norm, relu, residual: {layers: [conv2d: {channels: 5, kernel: 3, stride: 2, padding: "
    "1}, "
    "batch_norm, relu, concat: [[conv2d: {channels: 3, kernel: 1}], [max_pool: {kernel: 3, stride: "
    "1, padding: 1}, conv2d: {channels: 4, kernel: 3, padding: 1}, batch_norm, relu, conv2d: "
    "{channels: 4, kernel: 1}]]], shortcut: [conv2d: {channels: 7, kernel: 1, stride: 2}, "
    "batch_norm]}, relu, conv2d: {channels: 6, kernel: 3}, batch_norm, relu, linear: {units: 11}, "
    "batch_norm, relu, linear: {units: 10}]}";

TEST_CASE("subnets of models with blocks equal the reference to the bit", "[subnet][train]") {
  const int workers = GENERATE(1, 2, 3);
  const std::string model = GENERATE(kResiduals, kImages);
  const std::string method =
      GENERATE("method={ist: {local_steps: 7, cut: all}}", "method={ist: {local_steps: 7}}",
               "method={ist: {local_steps: 7, cut: all, order: rolling}}");
  CAPTURE(workers, model, method);
  const v1::Job job = SubnetJob({model, method}, 2, workers);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, workers);
  const auto ran = Train(job, &data, &cluster, workers);
  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, workers, backend.get());
  const std::vector<int64_t> steps = {7, 7, 5};
  for (uint64_t round = 1; round <= 3; ++round) {
    reference.Round(round, 7 * (round - 1), steps[round - 1], std::vector<bool>(workers, true));
  }
  CHECK(cluster.Parameters() == reference.Parameters());
  for (int site = 0; site < workers; ++site) {
    uint64_t floats = 0;
    for (uint64_t round = 1; round <= 3; ++round) {
      floats += reference.SubnetSize(round, workers, site);
    }
    CHECK(ran[site]->client.traffic().push_payload_bytes == 4 * floats);
    CHECK(ran[site]->client.traffic().pull_payload_bytes == 4 * floats);
  }
}

// A transformer whose embedding is also its last layer's weight.
constexpr char kHeads[] =
    "model={input: {tokens: {vocabulary: 12, context: 6}}, layers: [embedding: {units: 12}, "
    "repeat: {times: 2, layers: [residual: {layers: [layer_norm, attention: {heads: 3}]}, "
    "residual: {layers: [layer_norm, linear: {units: 13}, gelu, linear: {units: 12}]}]}, "
    "layer_norm, linear: {units: vocabulary, tied: true, bias: false}]}";

// A text of twelve letters in which each letter says something about the next one.
std::string TextFile(const std::string& name, uint32_t seed, int length) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/" + name;
  std::ofstream file(path);
  uint32_t letter = seed;
  for (int i = 0; i < length; ++i) {
    seed = seed * 1664525 + 1013904223;
    letter = (letter * 5 + (seed >> 28)) % 12;
    file << static_cast<char>('a' + (i < 12 ? i : letter));
  }
  return path;
}

TEST_CASE("subnets of heads and units of a transformer equal the reference to the bit",
          "[subnet][train][sequences]") {
  const int workers = GENERATE(1, 2, 3);
  const std::string method =
      GENERATE("method={ist: {local_steps: 7, cut: all}}", "method={ist: {local_steps: 7}}",
               "method={ist: {local_steps: 7, cut: all, order: rolling}}");
  CAPTURE(workers, method);
  const std::string data =
      "data={format: text, train: {features: " + TextFile("train.txt", 7, 1500) +
      "}, test: {features: " + TextFile("test.txt", 8, 300) + "}}";
  const v1::Job job = SubnetJob(
      {data, kHeads, method, "train.optimizer={adamw: {learning_rate: 0.01}}"}, 2, workers);
  const Datasets rows = *LoadDatasets(job.data(), EndsOf(job.model(), *ShapeOf(job.model())));
  InProcessServers cluster(job, *RecipeFor(job), 2, workers);
  const std::vector<float> initial = cluster.Parameters();
  const auto ran = Train(job, &rows, &cluster, workers);
  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &rows.train, workers, backend.get());
  REQUIRE(reference.Parameters() == initial);
  const std::vector<int64_t> steps = {7, 7, 5};
  for (uint64_t round = 1; round <= 3; ++round) {
    reference.Round(round, 7 * (round - 1), steps[round - 1], std::vector<bool>(workers, true));
  }
  CHECK(cluster.Parameters() == reference.Parameters());
  for (int site = 0; site < workers; ++site) {
    uint64_t floats = 0;
    for (uint64_t round = 1; round <= 3; ++round) {
      floats += reference.SubnetSize(round, workers, site);
    }
    CHECK(ran[site]->client.traffic().push_payload_bytes == 4 * floats);
    CHECK(ran[site]->client.traffic().pull_payload_bytes == 4 * floats);
  }
}

TEST_CASE("all sites together move what the formula of the paper says", "[subnet][train]") {
  // 64 - 17 - 13 - 10, without vectors.
  const v1::Job job = SubnetJob({"model.layers=[linear: {units: 17, bias: false}, relu: {}, "
                                 "linear: {units: 13, bias: false}, relu: {}, "
                                 "linear: {units: 10, bias: false}]"},
                                2, 3);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 3);
  const auto ran = Train(job, &data, &cluster, 3);
  uint64_t pushed = 0;
  for (const auto& worker : ran) pushed += worker->client.traffic().push_payload_bytes;
  // Hidden to hidden: parts of 5, 6, 6 and of 4, 4, 5 neurons.
  CHECK(pushed == 4 * 3 * (64 * 17 + 13 * 10 + 5 * 4 + 6 * 4 + 6 * 5));
}

TEST_CASE("how a worker uses its memory changes no parameter and no score", "[subnet][train]") {
  const int workers = GENERATE(1, 3);
  const std::string model = GENERATE(kTwoHidden, kThreeHidden);
  CAPTURE(workers, model);
  // Evaluations in the middle of rounds, too.
  v1::Job job = SubnetJob({model, "train.epochs=2", "train.evaluate_every=1",
                           "data.partition=" + std::string(workers == 1 ? "global" : "shard")},
                          2, workers);
  const Datasets data = DataOf(job);
  InProcessServers roomy(job, *RecipeFor(job), 2, workers);
  const auto whole = Train(job, &data, &roomy, workers);
  job.mutable_cluster()->set_evaluation_memory(0);
  InProcessServers blocks(job, *RecipeFor(job), 2, workers);
  const auto streamed = Train(job, &data, &blocks, workers);
  job.mutable_cluster()->set_memory_limit(1);
  InProcessServers narrow(job, *RecipeFor(job), 2, workers);
  const auto least = Train(job, &data, &narrow, workers);
  CHECK_FALSE(least[0]->learner->pulls_apart());
  CHECK(blocks.Parameters() == roomy.Parameters());
  CHECK(narrow.Parameters() == roomy.Parameters());
  for (int k = 0; k < workers; ++k) {
    const auto& want = whole[k]->coordination.scores;
    REQUIRE(want.size() == 2);
    for (const auto* other : {&streamed, &least}) {
      const Worker& worker = *(*other)[k];
      // Nobody pushes while the last one stands; one worker has all to itself.
      for (size_t i = workers == 1 ? 0 : 1; i < 2; ++i) {
        const EvaluationScores& got = worker.coordination.scores.at(i);
        CHECK(got.loss_sum == Approx(want[i].loss_sum).epsilon(1e-6));
        CHECK(got.correct == want[i].correct);
        CHECK(got.precision_hits[2] == want[i].precision_hits[2]);
      }
      CHECK(worker.client.traffic().push_payload_bytes ==
            whole[k]->client.traffic().push_payload_bytes);
      CHECK(worker.client.traffic().pull_payload_bytes ==
            whole[k]->client.traffic().pull_payload_bytes);
      CHECK(worker.client.traffic().exchanges == whole[k]->client.traffic().exchanges);
      CHECK(worker.client.traffic().other_payload_bytes > 0);
    }
  }
}

TEST_CASE("one site is plain local training to the bit", "[subnet][train]") {
  const std::string model = GENERATE(kTwoHidden, kThreeHidden);
  const v1::Job job = SubnetJob({model}, 2, 1);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 1);
  Train(job, &data, &cluster, 1);
  // One exchange, at the end; what a delta adds up to on the servers is rounded.
  const v1::Job local = LocalJob({model, "method.local_sgd.local_steps=1000"}, 2, 1);
  InProcessServers local_cluster(local, *RecipeFor(local), 2, 1);
  const auto ran = Train(local, &data, &local_cluster, 1);
  CHECK(cluster.Parameters() == ran[0]->keeping.trained);
}

TEST_CASE("a round in which nothing is learned changes no bit", "[subnet][train]") {
  const v1::Job job = SubnetJob({kThreeHidden, "train.optimizer={sgd: {learning_rate: 0}}"}, 3, 3);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 3, 3);
  const std::vector<float> initial = cluster.Parameters();
  Train(job, &data, &cluster, 3);
  CHECK(cluster.Parameters() == initial);
}

TEST_CASE("a lost site leaves its entries alone, and those that stay follow the next cut",
          "[subnet][train]") {
  const v1::Job job = SubnetJob({kTwoHidden, "train.steps=35"}, 2, 3);
  v1::Job shorter = job;
  shorter.mutable_train()->set_steps(14);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 3);
  Worker first(job, &data, &cluster, 0, 3), second(job, &data, &cluster, 1, 3);
  Worker lost(shorter, &data, &cluster, 2, 3);
  for (Worker* worker : {&first, &second, &lost}) worker->Start();
  // It has fetched round 3, which is cut in three, and returns nothing.
  lost.Join();
  Plan plan;
  plan.generation = Generation(2);
  plan.members = {{MemberId(1), Rank(0), Exchange(1)}, {MemberId(2), Rank(1), Exchange(1)}};
  plan.departed = {{MemberId(3), Rank(2), Exchange(1), Exchange(4)}};
  cluster.SetPlan(plan);
  first.Join();
  second.Join();

  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, 3, backend.get());
  reference.Round(1, 0, 7, {true, true, true});
  reference.Round(2, 7, 7, {true, true, true});
  reference.Round(3, 14, 7, {true, true, false});
  reference.Round(4, 21, 7, {true, true});
  reference.Round(5, 28, 7, {true, true});
  CHECK(cluster.Parameters() == reference.Parameters());
  CHECK(first.client.traffic().exchanges == 5);
}

Plan PlanWithShares(uint64_t generation, std::vector<uint32_t> shares, uint64_t first) {
  Plan plan;
  plan.generation = Generation(generation);
  PartShares parts;
  parts.first = Exchange(first);
  for (size_t k = 0; k < shares.size(); ++k) {
    plan.members.push_back({MemberId(k + 1), Rank(k), Exchange(1)});
    parts.of.push_back({MemberId(k + 1), shares[k]});
  }
  plan.shares.push_back(std::move(parts));
  return plan;
}

TEST_CASE("parts of any sizes are followed, and speeds are told of the present ones",
          "[subnet][train]") {
  const std::string model = GENERATE(kTwoHidden, kThreeHidden);
  const v1::Job job = SubnetJob({model, "train.steps=28"}, 2, 3);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 3);
  // Unequal from round 3 on: 1, 2 and 4 sevenths.
  cluster.SetPlan(PlanWithShares(2, {1, 2, 4}, 3));
  const auto ran = Train(job, &data, &cluster, 3);
  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, 3, backend.get());
  const std::vector<bool> all(3, true);
  reference.Round(1, 0, 7, all);
  reference.Round(2, 7, 7, all);
  reference.Round(3, 14, 7, all, {1, 2, 4});
  reference.Round(4, 21, 7, all, {1, 2, 4});
  CHECK(cluster.Parameters() == reference.Parameters());
  for (int site = 0; site < 3; ++site) {
    const Traffic traffic = ran[site]->client.traffic();
    uint64_t floats = 0;
    for (const int round : {1, 2}) floats += reference.SubnetSize(round, 3, site);
    for (const int round : {3, 4}) {
      floats += reference.SubnetSize(round, std::vector<int>{1, 2, 4}, site);
    }
    CHECK(traffic.push_payload_bytes == 4 * floats);
    CHECK(traffic.pull_payload_bytes == 4 * floats);
    // Two rounds of them, less the first step.
    CHECK(ran[site]->coordination.last_progress.speed_steps == 13);
    CHECK(ran[site]->coordination.last_progress.steps_per_second > 0);
  }
}

TEST_CASE("a worker that knows of other sites than there are is told how the round is cut",
          "[subnet][train]") {
  v1::Job job = SubnetJob({kThreeHidden}, 2, 2);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 2);
  // The job file says five.
  job.mutable_cluster()->set_workers(5);
  Train(job, &data, &cluster, 2);
  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, 2, backend.get());
  reference.Round(1, 0, 7, {true, true});
  reference.Round(2, 7, 7, {true, true});
  reference.Round(3, 14, 5, {true, true});
  CHECK(cluster.Parameters() == reference.Parameters());
}

// Cuts each round anew whenever it is asked.
class FickleClient final : public ParameterClient {
 public:
  absl::StatusOr<ExchangeResult> Pull(Exchange, const KeySet& keys,
                                      const ParameterArrays&) override {
    ++pulls;
    ExchangeResult result;
    result.recut = keys.subnet;
    result.recut->shares.push_back(1);
    return result;
  }
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush&, const KeySet&,
                                          const ConstParameterArrays&, const KeySet&,
                                          const ParameterArrays&) override {
    return absl::InternalError("not reached");
  }
  absl::StatusOr<ExchangeResult> Read(Exchange, IdleNotice, const ParameterArrays&) override {
    return absl::InternalError("not reached");
  }
  absl::Status ReadRows(const RowRange&, absl::Span<float>) override { return absl::OkStatus(); }
  Traffic traffic() const override { return Traffic(); }
  int pulls = 0;
};

TEST_CASE("a worker does not ask for ever how a round is cut", "[subnet][train]") {
  // Where there are more sites than neurons it cannot even ask again.
  const bool wide = GENERATE(true, false);
  const v1::Job job = SubnetJob({wide ? kTwoHidden : "seed=6"}, 1, wide ? 1 : 24);
  const Datasets data = DataOf(job);
  const auto backend = *CreateBackend("cpu", 1);
  const auto learner =
      *SubnetReplica::Create(job, *RecipeFor(job), Rank(0), Exchange(1), backend.get());
  FickleClient client;
  LoneCoordination coordination(0, 1, 112);
  TrainLoop loop({job, *RecipeFor(job), Rank(0)}, &data, learner.get(), &client, &coordination);
  const absl::Status status = loop.Run();
  if (wide) {
    CHECK(status.message() == "round 1: cut otherwise 10 times in a row, want one cut");
    CHECK(client.pulls == 11);
  } else {
    CHECK(status.message() ==
          "subnet: site 0 of 25 has none of the 24 neurons of hidden layer 1 in round 1, want at "
          "least 1; use fewer workers");
    CHECK(client.pulls == 1);
  }
}

TEST_CASE("an ensemble is one round that lasts for the whole job", "[subnet][train]") {
  v1::Job job = LocalJob({kTwoHidden}, 2, 3);
  job.mutable_method()->mutable_ensemble();
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, 3);
  const auto ran = Train(job, &data, &cluster, 3);
  const auto backend = *CreateBackend("cpu", 1);
  SubnetReference reference(job, &data.train, 3, backend.get());
  reference.Round(1, 0, 19, {true, true, true});
  CHECK(cluster.Parameters() == reference.Parameters());
  CHECK(ran[0]->client.traffic().exchanges == 1);
}

TEST_CASE("subnets learn, and evaluations in between disturb nothing", "[subnet][train]") {
  const std::string model =
      "model.layers=[linear: {units: 64}, batch_norm: {}, relu: {}, linear: {units: 32}, "
      "batch_norm: {}, relu: {}, linear: {units: 10}]";
  const v1::Job job = SubnetJob({model, "train.steps=224", "train.evaluate_every=1"}, 2, 2);
  const v1::Job at_end = SubnetJob({model, "train.steps=224"}, 2, 2);
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

}  // namespace
}  // namespace tessera
