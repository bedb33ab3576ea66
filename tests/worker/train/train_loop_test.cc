// Whole training runs in one process: real data, network, shards and loop; only the network between
// them and the coordinator are stood in for.
#include "worker/train/train_loop.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/method/train_rows.h"
#include "kernels/devices.h"
#include "tests/worker/train/forwarding_client.h"
#include "tests/worker/train/in_process_servers.h"
#include "tests/worker/train/lone_coordination.h"
#include "tests/worker/train/lone_worker.h"
#include "tests/worker/train/loop_job.h"
#include "worker/data/byte_source.h"
#include "worker/data/load_datasets.h"
#include "worker/replica/replica.h"
#include "worker/train/forwarding_learner.h"

namespace tessera {
namespace {

struct Outcome {
  std::vector<float> parameters;
  uint64_t hash = 0;
  std::vector<std::unique_ptr<LoneCoordination>> workers;
  std::vector<std::unique_ptr<TrainLoop>> loops;
  std::vector<std::unique_ptr<Replica>> replicas;
};

// Trains `job` with that many workers, each on a thread of its own.
Outcome Train(const v1::Job& job, int servers, int workers) {
  Outcome outcome;
  const Recipe recipe = *RecipeFor(job);
  InProcessServers cluster(job, recipe, servers, workers);
  const Datasets data = *LoadDatasets(job, EndsOf(job.model(), cluster.shape()));
  const int64_t steps = *EpochSteps(data.train.rows(), workers, job.train().batch_size());
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<std::unique_ptr<InProcessClient>> clients;
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(workers);
  for (int k = 0; k < workers; ++k) {
    backends.push_back(*CreateBackend("cpu", 1));
    clients.push_back(std::make_unique<InProcessClient>(&cluster, MemberId(k + 1), recipe.payload));
    outcome.workers.push_back(std::make_unique<LoneCoordination>(k, workers, steps));
    outcome.replicas.push_back(*Replica::Create(job, recipe, Rank(k), backends[k].get()));
    TrainLoop::Options options;
    options.job = job;
    options.recipe = recipe;
    options.rank = Rank(k);
    outcome.loops.push_back(std::make_unique<TrainLoop>(
        options, &data, outcome.replicas[k].get(), clients[k].get(), outcome.workers[k].get()));
  }
  for (int k = 0; k < workers; ++k) {
    threads.emplace_back([&, k] { results[k] = outcome.loops[k]->Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) {
    INFO(result.ToString());
    REQUIRE(result.ok());
  }
  outcome.parameters = cluster.Parameters();
  outcome.hash = cluster.Hash();
  outcome.replicas.clear();  // They use the backends.
  return outcome;
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
  return most;
}

TEST_CASE("k workers of batch b follow one worker of batch k*b", "[train]") {
  const int workers = GENERATE(2, 3, 5);
  const Outcome many = Train(Job({}), 2, workers);
  const Outcome one = Train(Job({absl::StrCat("train.batch_size=", 12 * workers)}), 2, 1);
  const Outcome untrained = Train(Job({"train.optimizer.sgd.learning_rate=0"}), 2, 1);
  CHECK(MaxDifference(many.parameters, one.parameters) < 2e-6);
  CHECK(MaxDifference(many.parameters, untrained.parameters) > 1e-2);
}

// Residual sums and a concat of convolutions, without norms, whose statistics are of a worker's own rows.
constexpr char kBlocks[] =
    "model={input: [1, 8, 8], layers: [conv2d: {channels: 4, kernel: 3, padding: 1}, relu, repeat: "
    "{times: 2, layers: [residual: {layers: [conv2d: {channels: 4, kernel: 3, padding: 1}, "
    "relu]}]}, "
    "concat: [[conv2d: {channels: 3, kernel: 1}], [max_pool: {kernel: 3, stride: 1, padding: 1}], "
    "[]], "
    "relu, avg_pool: {kernel: 4}, linear: {units: 10}]}";

TEST_CASE("workers of a model with blocks follow one that has all of their rows", "[train]") {
  const int workers = GENERATE(2, 3);
  const std::string rate = "train.optimizer.sgd.learning_rate=0.02";
  const Outcome many = Train(Job({kBlocks, rate}), 2, workers);
  const Outcome one =
      Train(Job({kBlocks, rate, absl::StrCat("train.batch_size=", 12 * workers)}), 2, 1);
  const Outcome local = Train(Job({kBlocks, rate, "method.local_sgd.local_steps=1"}), 2, workers);
  const Outcome untrained = Train(Job({kBlocks, "train.optimizer.sgd.learning_rate=0"}), 2, 1);
  CHECK(MaxDifference(many.parameters, one.parameters) < 4e-6);
  CHECK(MaxDifference(many.parameters, local.parameters) < 4e-6);
  CHECK(MaxDifference(many.parameters, untrained.parameters) > 1e-2);
  CHECK(Train(Job({kBlocks, rate}), 3, workers).hash == many.hash);
}

TEST_CASE("momentum and weight decay on the servers follow one worker too", "[train]") {
  const std::string sgd =
      "train.optimizer={sgd: {learning_rate: 0.02, momentum: 0.9, weight_decay: 0.01}}";
  const Outcome many = Train(Job({sgd}), 3, 3);
  const Outcome one = Train(Job({sgd, "train.batch_size=36"}), 1, 1);
  CHECK(MaxDifference(many.parameters, one.parameters) < 5e-6);
}

TEST_CASE("the same job gives the same bits on every run and on any number of servers", "[train]") {
  const std::vector<std::string> overrides = GENERATE(
      std::vector<std::string>{}, std::vector<std::string>{"method.local_sgd.local_steps=7"});
  const Outcome first = Train(Job(overrides), 2, 4);
  for (const int servers : {1, 2, 5, 30}) {
    CHECK(Train(Job(overrides), servers, 4).hash == first.hash);
  }
  CHECK(Train(Job({"seed=4"}), 2, 4).hash != first.hash);
}

TEST_CASE("local sgd with one local step equals data parallel", "[train]") {
  const Outcome local = Train(Job({"method.local_sgd.local_steps=1"}), 2, 3);
  const Outcome parallel = Train(Job({}), 2, 3);
  CHECK(MaxDifference(local.parameters, parallel.parameters) < 2e-6);
}

TEST_CASE("one worker of local sgd gets what it would get alone, however often it exchanges",
          "[train]") {
  const Outcome often = Train(Job({"method.local_sgd.local_steps=1"}), 2, 1);
  const Outcome once = Train(Job({"method.local_sgd.local_steps=50"}), 2, 1);
  CHECK(MaxDifference(often.parameters, once.parameters) < 2e-6);
}

TEST_CASE("averaging momentum after each local step equals momentum on the servers", "[train]") {
  const std::string sgd = "train.optimizer={sgd: {learning_rate: 0.02, momentum: 0.9}}";
  const Outcome server = Train(Job({sgd}), 2, 3);
  const Outcome averaged =
      Train(Job({sgd, "method={local_sgd: {local_steps: 1, average_state: true}}"}), 2, 3);
  const Outcome apart =
      Train(Job({sgd, "method={local_sgd: {local_steps: 1, average_state: false}}"}), 2, 3);
  std::vector<float> parameters = averaged.parameters;
  REQUIRE(parameters.size() == 2 * server.parameters.size());
  parameters.resize(server.parameters.size());
  CHECK(MaxDifference(parameters, server.parameters) < 5e-6);
  // The mean of momenta is the momentum of the mean, so that keeping them apart is the same here;
  // with second moments it is not.
  CHECK(MaxDifference(apart.parameters, server.parameters) < 5e-6);
}

TEST_CASE("averaged second moments are every worker's", "[train]") {
  const std::string adamw = "train.optimizer={adamw: {learning_rate: 0.005}}";
  const Outcome averaged =
      Train(Job({adamw, "method={local_sgd: {local_steps: 5, average_state: true}}"}), 2, 3);
  const Outcome apart =
      Train(Job({adamw, "method={local_sgd: {local_steps: 5, average_state: false}}"}), 2, 3);
  REQUIRE(averaged.parameters.size() == 3 * apart.parameters.size());
  std::vector<float> parameters = averaged.parameters;
  parameters.resize(apart.parameters.size());
  CHECK(MaxDifference(parameters, apart.parameters) > 1e-4);
  double squares = 0;
  for (size_t i = 2 * apart.parameters.size(); i < averaged.parameters.size(); ++i) {
    REQUIRE(averaged.parameters[i] >= -1e-12f);
    squares += averaged.parameters[i];
  }
  CHECK(squares > 0);
  for (const auto& worker : averaged.workers) CHECK(worker->scores.back().correct > 300);
}

TEST_CASE("a schedule counts the job's examples, whoever sees them", "[train]") {
  const std::string schedule =
      "train.schedule={warmup: 400, decay: {cosine: {examples: 2500, floor: 0.1}}}";
  const Outcome one = Train(Job({schedule, "train.batch_size=36"}), 2, 1);
  const Outcome many = Train(Job({schedule}), 2, 3);
  const Outcome local = Train(Job({schedule, "method.local_sgd.local_steps=1"}), 2, 3);
  const Outcome constant = Train(Job({}), 2, 3);
  CHECK(MaxDifference(many.parameters, one.parameters) < 2e-6);
  CHECK(MaxDifference(local.parameters, one.parameters) < 2e-6);
  CHECK(MaxDifference(constant.parameters, one.parameters) > 1e-3);
}

TEST_CASE("diloco whose outer step is the mean itself equals local sgd to the bit", "[train]") {
  const Outcome local = Train(Job({"method={local_sgd: {local_steps: 7}}"}), 2, 3);
  const Outcome diloco = Train(Job({"method={diloco: {local_steps: 7, outer_learning_rate: 1, "
                                    "outer_momentum: 0}}"}),
                               2, 3);
  const Outcome outer = Train(Job({"method={diloco: {local_steps: 7}}"}), 2, 3);
  CHECK(diloco.hash == local.hash);
  CHECK(outer.hash != local.hash);
  for (const auto& worker : outer.workers) CHECK(worker->scores.back().correct > 250);
}

TEST_CASE("a quorum of all is the barrier", "[train]") {
  const int workers = GENERATE(2, 3);
  const bool overlaps = GENERATE(false, true);
  const std::string method =
      absl::StrCat("method={diloco: {local_steps: 7, overlap: ", overlaps ? "true" : "false");
  const Outcome barrier = Train(Job({method + "}}"}), 2, workers);
  const std::string quorum = absl::StrCat(method, ", quorum: {pushes: ", workers, "}}}");
  const Outcome all = Train(Job({quorum, absl::StrCat("cluster.workers=", workers)}), 2, workers);
  // Pushes are folded as they come there; two give the same sum.
  if (workers == 2) CHECK(all.hash == barrier.hash);
  CHECK(MaxDifference(all.parameters, barrier.parameters) < 1e-6);
  const Outcome apart = Train(Job({"method={diloco: {local_steps: 10}}"}), 2, workers);
  CHECK(MaxDifference(apart.parameters, barrier.parameters) > 1e-3);
}

TEST_CASE("every method trains whatever its workers' paces", "[train]") {
  const std::string method = GENERATE(
      "method={softsync: {pushes: 2, staleness: {inverse: {scale: 1.0}}}}",
      "method={ssp: {bound: 1, local_steps: 2}}",
      "method={diloco: {local_steps: 5, quorum: {pushes: 2, grace: 5ms}}}",
      "method={diloco: {local_steps: 5, quorum: {pushes: 2, adaptive_grace: true}, overlap: "
      "true}}",
      "method={diloco: {local_steps: 5, asynchronous: true}}",
      "method={async_sgd: {staleness: {exponential: {base: 0.7}}}}");
  INFO(method);
  const Outcome run = Train(Job({method, "train.steps=150", "cluster.workers=3"}), 2, 3);
  for (const auto& worker : run.workers) CHECK(worker->scores.back().correct > 250);
}

TEST_CASE("a worker exchanges as often as its budget of steps says", "[train]") {
  LoneWorker worker({"method={diloco: {local_steps: 6, asynchronous: true}}", "train.steps=20",
                     "train.evaluate_every=0"});
  LoneCoordination coordination(0, 1, 112);
  coordination.budget = 4;
  TrainLoop loop(worker.options(), &worker.data, worker.replica.get(), &worker.client,
                 &coordination);
  REQUIRE(loop.Run().ok());
  CHECK(coordination.last_progress.exchange == 5);
  CHECK(coordination.last_progress.steps_per_second > 0);
}

TEST_CASE("an evaluation waits for the exchange boundary at or after it is due", "[train]") {
  // An epoch is 1347 / (2 * 96) = 7 steps; exchanges end at steps 5, 10, 15, 20 and, the last one
  // shorter, 23.
  const Outcome run = Train(Job({"method.local_sgd.local_steps=5", "train.batch_size=96",
                                 "train.steps=23", "train.evaluate_every=1"}),
                            2, 2);
  for (const auto& worker : run.workers) {
    std::vector<uint64_t> steps;
    for (const Coordination::Arrival& arrival : worker->arrivals) {
      steps.push_back(arrival.progress.step);
    }
    CHECK(steps == std::vector<uint64_t>{10, 15, 23});
    CHECK(worker->arrivals[0].loss_count == 10);
    CHECK(worker->arrivals[1].loss_count == 5);
    CHECK_FALSE(worker->arrivals[1].last);
    CHECK(worker->arrivals[2].last);
    CHECK(worker->last_progress.exchange == 5);
    CHECK(worker->last_progress.examples == 23 * 96);
    CHECK(worker->scores.back().rows == 450);
  }
}

TEST_CASE("training ends where an evaluation says so", "[train]") {
  LoneWorker worker({"train={batch_size: 96, epochs: 9, optimizer: {sgd: {learning_rate: 0.05}}}"});
  LoneCoordination coordination(0, 1, 14);
  SECTION("the target is reached") { coordination.stop_at_correct = 0; }
  SECTION("the job is drained at an exchange") {
    coordination.drain = Exchange(14);
    coordination.stop_at_correct = 0;
  }
  TrainLoop loop(worker.options(), &worker.data, worker.replica.get(), &worker.client,
                 &coordination);
  REQUIRE(loop.Run().ok());
  CHECK(loop.steps() == 14);
  const PhaseTimer& phases = loop.phases();
  CHECK(phases.seconds(Phase::kCompute) > 0);
  CHECK(phases.seconds(Phase::kEvaluate) > 0);
}

// Of a minibatch's five seconds three are another worker's.
class WaitingLearner final : public ForwardingLearner {
 public:
  WaitingLearner(std::unique_ptr<Learner> inner, absl::Duration* now)
      : ForwardingLearner(std::move(inner)), now_(*now) {}
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    now_ += absl::Seconds(1);
    point.waits->BeginWait();
    now_ += absl::Seconds(3);
    point.waits->EndWait();
    now_ += absl::Seconds(1);
    return ForwardingLearner::Train(data, rows, point);
  }

 private:
  absl::Duration& now_;
};

TEST_CASE(
    "what a minibatch waits for others is no part of a worker's speed, nor of what it computes",
    "[train]") {
  LoneWorker worker({"train.steps=10"});
  absl::Duration now = absl::Seconds(100);
  WaitingLearner learner(std::move(worker.replica), &now);
  TrainLoop::Options options = worker.options();
  options.clock = [&now] { return now; };
  LoneCoordination coordination(0, 1, 112);
  TrainLoop loop(options, &worker.data, &learner, &worker.client, &coordination);
  REQUIRE(loop.Run().ok());
  CHECK(coordination.last_progress.steps_per_second == Approx(1 / 2.0));
  CHECK(loop.phases().seconds(Phase::kCompute) == 10 * 2);
  CHECK(loop.phases().seconds(Phase::kWait) == 10 * 3);
  CHECK(coordination.last_progress.phases[static_cast<size_t>(Phase::kWait)] == 10 * 3);
}

// The others come seven seconds later, and one of them is lost after five more: all begin again.
class BeginningAgain final : public LoneCoordination {
 public:
  explicit BeginningAgain(absl::Duration* now) : LoneCoordination(0, 1, 112), now_(*now) {}
  absl::StatusOr<EvaluationPlace> Arrive(const Arrival& arrival) override {
    now_ += absl::Seconds(arrivals.empty() ? 7 : 11);
    return LoneCoordination::Arrive(arrival);
  }
  absl::StatusOr<std::optional<std::vector<float>>> ShareConstants(
      const EvaluationPlace& place, std::vector<float> constants) override {
    if (arrivals.size() > 1) {
      return LoneCoordination::ShareConstants(place, std::move(constants));
    }
    now_ += absl::Seconds(5);
    return std::optional<std::vector<float>>();
  }

 private:
  absl::Duration& now_;
};

TEST_CASE("what an evaluation that begins again takes is no part of training", "[train]") {
  LoneWorker worker({"train.steps=10"});
  absl::Duration now = absl::Seconds(100);
  TrainLoop::Options options = worker.options();
  options.clock = [&now] { return now; };
  BeginningAgain coordination(&now);
  TrainLoop loop(options, &worker.data, worker.replica.get(), &worker.client, &coordination);
  REQUIRE(loop.Run().ok());
  CHECK(coordination.arrivals.size() == 2);
  CHECK(loop.phases().seconds(Phase::kWait) == 7);
  CHECK(loop.phases().seconds(Phase::kEvaluate) == 5 + 11);
}

// Every exchange takes a second; one of them does not succeed, which takes it seven.
class Breaking final : public ForwardingClient {
 public:
  Breaking(ParameterClient* client, Exchange at, absl::Duration* now)
      : ForwardingClient(client), at_(at), now_(*now) {}
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    now_ += absl::Seconds(push.exchange == at_ ? 7 : 1);
    if (push.exchange == at_) return absl::UnavailableError("server 0 is gone");
    return ForwardingClient::PushPull(push, update_keys, update, value_keys, values);
  }

 private:
  const Exchange at_;
  absl::Duration& now_;
};

TEST_CASE("a worker that trains again waits between its lives, and every second is of some phase",
          "[train]") {
  LoneWorker worker({"train.steps=10"});
  absl::Duration now = absl::Seconds(100);
  TrainLoop::Options options = worker.options();
  options.clock = [&now] { return now; };
  std::optional<LifeBefore> before;
  {
    InProcessClient client(&worker.servers, MemberId(1), worker.recipe.payload);
    Breaking breaking(&client, Exchange(4), &now);
    LoneCoordination coordination(0, 1, 112);
    TrainLoop loop(options, &worker.data, worker.replica.get(), &breaking, &coordination);
    REQUIRE_FALSE(loop.Run().ok());
    CHECK(loop.phases().seconds(Phase::kPull) == 3 + 7);
    CHECK(loop.phases().seconds(Phase::kWait) == 0);
    CHECK(coordination.last_progress.traffic.exchanges == 3);
    before.emplace(LifeBefore{loop.phases(), loop.traffic()});
  }
  now += absl::Seconds(20);
  options.first_exchange = Exchange(4);
  options.first_step = 3;
  options.before = before;
  InProcessClient client(&worker.servers, MemberId(1), worker.recipe.payload);
  Breaking unbroken(&client, Exchange(0), &now);
  LoneCoordination coordination(0, 1, 112);
  TrainLoop loop(options, &worker.data, worker.replica.get(), &unbroken, &coordination);
  REQUIRE(loop.Run().ok());
  CHECK(loop.phases().seconds(Phase::kPull) == 3 + 7 + 7);
  CHECK(loop.phases().seconds(Phase::kWait) == 20);
  CHECK(loop.traffic().exchanges == 10);
  CHECK(loop.traffic().push_payload_bytes == before->traffic.push_payload_bytes / 3 * 10);
  CHECK(coordination.last_progress.traffic.exchanges == 10);
  // Until its last minibatch ended, which no exchange but the last one came after.
  CHECK(coordination.last_progress.phases[static_cast<size_t>(Phase::kPull)] == 3 + 7 + 6);
  CHECK(coordination.last_progress.phases[static_cast<size_t>(Phase::kWait)] == 20);
  // Of this life: what was before is the coordinator's to count.
  CHECK(loop.examples() == 7 * 12);
}

// A checkpoint in which the worker had saved nothing but whether an evaluation was due to it; or nothing.
class SavedWord final : public WorkerStore {
 public:
  explicit SavedWord(std::optional<bool> evaluation_due) : evaluation_due_(evaluation_due) {}
  void Save(uint64_t, uint64_t, const WorkerCursor&, const PrivateState&) override {}
  void SaveLast(const WorkerCursor&, const PrivateState&) override {}
  absl::StatusOr<std::optional<WorkerCursor>> Load(const PrivateState&) override {
    if (!evaluation_due_.has_value()) return std::optional<WorkerCursor>();
    WorkerCursor cursor;
    cursor.evaluation_due = *evaluation_due_;
    return std::optional<WorkerCursor>(cursor);
  }

 private:
  const std::optional<bool> evaluation_due_;
};

TEST_CASE("a worker that goes on evaluates first where that was due to it, not to others alone",
          "[train]") {
  const bool due_to_some = GENERATE(true, false);
  const std::optional<bool> due_to_it =
      GENERATE(std::optional<bool>(), std::optional<bool>(true), std::optional<bool>(false));
  LoneWorker worker({});
  LoneCoordination coordination(0, 1, 112);
  SavedWord store(due_to_it);
  TrainLoop::Options options = worker.options();
  options.store = &store;
  options.resumes = true;
  options.evaluation_due = due_to_some;
  TrainLoop loop(options, &worker.data, worker.replica.get(), &worker.client, &coordination);
  REQUIRE(loop.Run().ok());
  const bool evaluates = due_to_some && due_to_it.value_or(true);
  CHECK(coordination.arrivals.size() == (evaluates ? 2 : 1));
  CHECK(coordination.arrivals.front().progress.step == (evaluates ? 0 : 50));
}

TEST_CASE(
    "a newcomer without barrier evaluates as often as others have yet to before they are where it "
    "begins",
    "[train]") {
  const bool lockstep = GENERATE(true, false);
  // It is told that epoch 1 begins where it does, and the cut is made anew: it begins in epoch 2.
  LoneWorker worker(
      {lockstep ? "method={local_sgd: {local_steps: 1}}" : "method={async_sgd: {local_steps: 1}}",
       "train={batch_size: 12, epochs: 3, evaluate_every: 1, optimizer: {sgd: {learning_rate: "
       "0.05}}}"});
  LoneCoordination coordination(0, 1, 112);
  TrainLoop::Options options = worker.options();
  options.first_step = 224;
  options.first_epoch = 1;
  options.evaluation_due = !lockstep;
  TrainLoop loop(options, &worker.data, worker.replica.get(), &worker.client, &coordination);
  REQUIRE(loop.Run().ok());
  std::vector<uint64_t> steps;
  for (const Coordination::Arrival& arrival : coordination.arrivals) {
    steps.push_back(arrival.progress.step);
  }
  CHECK(steps == (lockstep ? std::vector<uint64_t>{336} : std::vector<uint64_t>{224, 224, 336}));
}

TEST_CASE("an asynchronous job trains with every worker at its own pace", "[train]") {
  // So many that whoever is done first has learned, whatever the others have done by then.
  const Outcome run = Train(Job({"method.async_sgd.local_steps=1", "train.steps=300"}), 2, 3);
  for (const auto& worker : run.workers) CHECK(worker->scores.back().correct > 300);
}

// The digits as images, from files that are not compressed, with augmentation.
std::vector<std::string> Images(const std::vector<std::string>& more) {
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string here = folder != nullptr ? folder : "/tmp";
  for (const std::string set : {"train", "test"}) {
    for (const std::string kind : {"images-idx3", "labels-idx1"}) {
      const std::string name = absl::StrCat(set, "-", kind, "-ubyte");
      const auto source = *ByteSource::Open(absl::StrCat("deploy/data/optdigits/", name, ".gz"));
      std::string content(1 << 20, '\0');
      content.resize(*source->Read(&content[0], content.size()));
      std::ofstream(here + "/" + name, std::ios::binary) << content;
    }
  }
  std::vector<std::string> overrides = {
      "data.directory=" + here,
      "data.train={features: train-images-idx3-ubyte, labels: train-labels-idx1-ubyte}",
      "data.test={features: test-images-idx3-ubyte, labels: test-labels-idx1-ubyte}",
      "model.input=[1, 8, 8]", "data.augment={flip: horizontal, crop: {padding: 1}}"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

TEST_CASE("augmented rows are the same on any number of workers", "[train][augmentation]") {
  const std::string partition = GENERATE("global", "shard");
  const int workers = GENERATE(2, 3);
  const std::string key = "data.partition=" + partition;
  const Outcome many = Train(Job(Images({key})), 2, workers);
  // Within a step the rows of shards are others than one worker's, whose first step has all of them in its own order.
  if (partition == "shard") {
    CHECK(Train(Job(Images({key})), 1, workers).hash == many.hash);
    return;
  }
  const Outcome one = Train(Job(Images({absl::StrCat("train.batch_size=", 12 * workers)})), 2, 1);
  CHECK(MaxDifference(many.parameters, one.parameters) < 2e-6);
  const Outcome plain = Train(Job(Images({"data.augment={}"})), 2, workers);
  CHECK(MaxDifference(many.parameters, plain.parameters) > 1e-3);
}

TEST_CASE("a job whose rows stay on disk ends with the bits of one that holds them",
          "[train][rows_on_disk]") {
  const std::string method =
      GENERATE("method.data_parallel={}", "method={local_sgd: {local_steps: 3}}");
  // Two epochs and an evaluation in between.
  const std::vector<std::string> two = {method, "train.batch_size=200", "train.evaluate_every=1",
                                        "train.steps=14"};
  std::vector<std::string> stored = two;
  stored.insert(stored.end(), {"data.memory=1kB", "data.threads=2"});
  const Outcome held = Train(Job(Images(two)), 2, 2);
  const Outcome on_disk = Train(Job(Images(stored)), 2, 2);
  CHECK(on_disk.hash == held.hash);
  CHECK(on_disk.workers[0]->scores.back().correct == held.workers[0]->scores.back().correct);
}

TEST_CASE("a worker whose files give another number of steps is refused", "[train]") {
  LoneWorker worker({});
  LoneCoordination coordination(0, 1, 111);
  TrainLoop loop(worker.options(), &worker.data, worker.replica.get(), &worker.client,
                 &coordination);
  const absl::Status status = loop.Run();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("112 steps an epoch, want 111") != std::string::npos);
}

}  // namespace
}  // namespace tessera
