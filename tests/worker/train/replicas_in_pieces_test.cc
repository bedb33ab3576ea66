// Minibatches in pieces (train.micro_batch) where every worker has a replica beside it (method
// decentralized): what is computed in pieces is pushed to all replicas and added there. In such a job
// the order of the pushes is anybody's; here workers take turns, so that two runs can be compared.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/method/train_rows.h"
#include "tests/worker/train/subnet_workers.h"

namespace tessera {
namespace {

constexpr int kWorkers = 2;
using Replicas = std::vector<std::unique_ptr<InProcessServers>>;  // that of rank k is the k-th

// Exchanges are made by ranks 0, 1, ... in turn, once all have pulled what they begin with.
class Turns {
 public:
  void CountPull() {
    absl::MutexLock lock(&mutex_);
    ++pulls_;
  }
  void Await(int rank) {
    absl::MutexLock lock(&mutex_);
    const auto is_its = [this, rank]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return pulls_ == kWorkers && turn_ % kWorkers == rank;
    };
    mutex_.Await(absl::Condition(&is_its));
  }
  void Pass() {
    absl::MutexLock lock(&mutex_);
    ++turn_;
  }

 private:
  absl::Mutex mutex_;
  int pulls_ ABSL_GUARDED_BY(mutex_) = 0;
  int turn_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Pushes to all replicas, pulls from its own.
class ReplicaClient final : public ForwardingClient {
 public:
  ReplicaClient(InProcessClient* own, std::vector<InProcessClient*> peers, Turns* turns, int rank)
      : ForwardingClient(own), peers_(std::move(peers)), turns_(*turns), rank_(rank) {}

  absl::StatusOr<ExchangeResult> Pull(Exchange after, const KeySet& keys,
                                      const ParameterArrays& values) override {
    auto pulled = ForwardingClient::Pull(after, keys, values);
    turns_.CountPull();
    return pulled;
  }
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    std::vector<std::vector<float>> others;
    ParameterArrays unused;
    for (const auto& array : values) others.emplace_back(array.size());
    for (std::vector<float>& array : others) unused.push_back(absl::MakeSpan(array));
    OutgoingPush to_peer = push;
    to_peer.sink = nullptr;
    turns_.Await(rank_);
    for (InProcessClient* peer : peers_) {
      const auto pushed = peer->PushPull(to_peer, update_keys, update, value_keys, unused);
      if (!pushed.ok()) return pushed;
    }
    auto exchanged = ForwardingClient::PushPull(push, update_keys, update, value_keys, values);
    turns_.Pass();
    return exchanged;
  }

 private:
  const std::vector<InProcessClient*> peers_;
  Turns& turns_;
  const int rank_;
};

struct Run {
  std::vector<std::vector<double>> losses;     // of each worker
  std::vector<std::vector<float>> parameters;  // of each replica
};

Run TrainOn(const v1::Job& job, const Datasets& data) {
  const Recipe recipe = *RecipeFor(job);
  REQUIRE(recipe.placement == Placement::kReplicated);
  Replicas replicas;
  for (int k = 0; k < kWorkers; ++k) {
    replicas.push_back(std::make_unique<InProcessServers>(job, recipe, 1, kWorkers));
  }
  Turns turns;
  const int64_t epoch = *EpochSteps(data.train.rows(), kWorkers, job.train().batch_size());
  struct Site {
    std::unique_ptr<Backend> backend = OnCpu();
    std::vector<std::unique_ptr<InProcessClient>> clients;
    std::unique_ptr<ReplicaClient> client;
    std::unique_ptr<LoneCoordination> coordination;
    std::unique_ptr<LossNotes> learner;
    std::unique_ptr<TrainLoop> loop;
    std::thread thread;
    absl::Status status;
  };
  std::vector<Site> sites(kWorkers);
  for (int k = 0; k < kWorkers; ++k) {
    Site& site = sites[k];
    std::vector<InProcessClient*> peers;
    for (int r = 0; r < kWorkers; ++r) {
      site.clients.push_back(
          std::make_unique<InProcessClient>(replicas[r].get(), MemberId(k + 1), recipe.payload));
      if (r != k) peers.push_back(site.clients[r].get());
    }
    site.client = std::make_unique<ReplicaClient>(site.clients[k].get(), peers, &turns, k);
    site.coordination = std::make_unique<LoneCoordination>(k, kWorkers, epoch);
    auto learner = MakeReplica(job, recipe, Rank(k), Exchange(1), site.backend.get(), {});
    REQUIRE(learner.ok());
    site.learner = std::make_unique<LossNotes>(*std::move(learner));
    TrainLoop::Options options;
    options.job = job;
    options.recipe = recipe;
    options.rank = Rank(k);
    options.first_exchange = Exchange(1);
    site.loop = std::make_unique<TrainLoop>(options, &data, site.learner.get(), site.client.get(),
                                            site.coordination.get());
  }
  for (Site& site : sites) site.thread = std::thread([&site] { site.status = site.loop->Run(); });
  for (Site& site : sites) site.thread.join();
  Run run;
  for (int k = 0; k < kWorkers; ++k) {
    INFO(sites[k].status);
    REQUIRE(sites[k].status.ok());
    run.losses.push_back(sites[k].learner->losses());
    run.parameters.push_back(replicas[k]->Parameters());
  }
  return run;
}

TEST_CASE("replicas learn from minibatches in pieces what they do from whole ones", "[pieces]") {
  const std::string optimizer =
      GENERATE("train.optimizer={sgd: {learning_rate: 0.2}}",
               "train.optimizer={adamw: {learning_rate: 0.003, epsilon: 0.001}}");
  const std::string local_steps = GENERATE("1", "3");
  CAPTURE(optimizer, local_steps);
  v1::Job job = LocalJob({"cluster.servers=2", "cluster.workers=2", optimizer, "train.steps=60",
                          "method={decentralized: {local_steps: " + local_steps + "}}"},
                         kWorkers, kWorkers);
  const Datasets data = DataOf(job);
  const Run want = TrainOn(job, data);
  // Two runs in the same order are the same, so that what differs below is the pieces'.
  CHECK(TrainOn(job, data).parameters == want.parameters);
  job.mutable_train()->set_micro_batch(5);
  const Run got = TrainOn(job, data);
  CHECK(got.parameters != want.parameters);
  for (int k = 0; k < kWorkers; ++k) {
    CAPTURE(k);
    REQUIRE(want.losses[k].size() == 60);
    REQUIRE(got.losses[k].size() == want.losses[k].size());
    for (size_t step = 0; step < want.losses[k].size(); ++step) {
      CAPTURE(step);
      CHECK(got.losses[k][step] == Approx(want.losses[k][step]).epsilon(1e-3));
    }
    CHECK(want.losses[k].back() < 0.7 * want.losses[k].front());
    REQUIRE(got.parameters[k].size() == want.parameters[k].size());
    double most = 0;
    for (size_t i = 0; i < want.parameters[k].size(); ++i) {
      most = std::max<double>(most, std::fabs(got.parameters[k][i] - want.parameters[k][i]));
    }
    CHECK(most <= 1e-3);
  }
}

}  // namespace
}  // namespace tessera
