// Whole jobs with workers on a GPU against the same jobs with workers on the CPU. Runs on a GPU, and
// on one that the host plays.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/backend.h"
#include "tests/worker/train/subnet_workers.h"

namespace tessera {
namespace {

std::unique_ptr<Backend> OnDevice() {
  DeviceOptions options;
  options.cudnn_if_slower = true;  // Small convolutions would be products.
  auto backend = CreateCudaBackend(0, options);
  INFO(backend.status());
  REQUIRE(backend.ok());
  return *std::move(backend);
}

struct Run {
  std::vector<float> parameters;
  std::vector<std::unique_ptr<Worker>> workers;
};

Run RunOn(const BackendMaker& make_backend, const v1::Job& job, const Datasets& data, int servers,
          int workers) {
  InProcessServers cluster(job, *RecipeFor(job), servers, workers);
  Run run;
  run.workers = Train(job, &data, &cluster, workers, make_backend);
  run.parameters = cluster.Parameters();
  return run;
}

// Loss curves, final parameters, traffic and scores.
void CheckSame(const v1::Job& job, int servers, int workers) {
  const Datasets data = DataOf(job);
  const Run cpu = RunOn(OnCpu, job, data, servers, workers);
  const Run device = RunOn(OnDevice, job, data, servers, workers);
  for (int k = 0; k < workers; ++k) {
    const LoneCoordination &want = cpu.workers[k]->coordination,
                           &got = device.workers[k]->coordination;
    const std::vector<double>&want_losses = cpu.workers[k]->learner->losses(),
          &got_losses = device.workers[k]->learner->losses();
    REQUIRE(got_losses.size() == want_losses.size());
    REQUIRE(got_losses.size() == static_cast<size_t>(job.train().steps()));
    for (size_t step = 0; step < want_losses.size(); ++step) {
      CAPTURE(k, step);
      REQUIRE(got_losses[step] == Approx(want_losses[step]).epsilon(1e-3));
    }
    REQUIRE(got.arrivals.size() == want.arrivals.size());
    for (size_t i = 0; i < want.arrivals.size(); ++i) {
      CHECK(got.arrivals[i].loss_count == want.arrivals[i].loss_count);
      CHECK(got.arrivals[i].loss_sum == Approx(want.arrivals[i].loss_sum).epsilon(1e-3));
      CHECK(*got.arrivals[i].progress.train_loss ==
            Approx(*want.arrivals[i].progress.train_loss).epsilon(1e-3));
    }
    REQUIRE(got.scores.size() == want.scores.size());
    for (size_t i = 0; i < want.scores.size(); ++i) {
      CHECK(got.scores[i].loss_sum == Approx(want.scores[i].loss_sum).epsilon(1e-2));
      // A row between two classes may fall either way.
      CHECK(std::fabs(got.scores[i].correct - want.scores[i].correct) <= 2);
    }
    const Traffic a = cpu.workers[k]->client.traffic(), b = device.workers[k]->client.traffic();
    CHECK(a.push_payload_bytes == b.push_payload_bytes);
    CHECK(a.pull_payload_bytes == b.pull_payload_bytes);
    CHECK(a.exchanges == b.exchanges);
  }
  REQUIRE(device.parameters.size() == cpu.parameters.size());
  for (size_t i = 0; i < cpu.parameters.size(); ++i) {
    REQUIRE(std::fabs(device.parameters[i] - cpu.parameters[i]) <= 1e-3);
  }
}

// Wide enough that a part of it is no net of two neurons, in which a rounding may decide what lives.
constexpr char kNormed[] =
    "model.layers=[linear: {units: 66, bias: false}, batch_norm: {}, relu: {}, "
    "linear: {units: 48, bias: false}, batch_norm: {}, relu: {}, linear: {units: 10, bias: false}, "
    "batch_norm: {affine: false}]";
constexpr char kMixed[] =
    "model.layers=[linear: {units: 61}, batch_norm: {}, relu: {}, linear: {units: 50}, "
    "batch_norm: {}, relu: {}, linear: {units: 10}]";
constexpr char kAdamW[] =
    "train.optimizer={adamw: {learning_rate: 0.001, epsilon: 0.001, weight_decay: 0.01}}";
constexpr char kMomentum[] =
    "train.optimizer={sgd: {learning_rate: 0.02, momentum: 0.9, weight_decay: 0.01}}";

}  // namespace

TEST_CASE("a job on the whole model learns on a GPU as it does on the CPU", "[device][train]") {
  const int workers = GENERATE(1, 2);
  const std::string method = GENERATE(
      "method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
      "method={local_sgd: {local_steps: 7, average_state: true}}",
      "method={diloco: {local_steps: 5}}", "method={local_sgd: {local_steps: 7, overlap: true}}",
      "method={diloco: {local_steps: 8, fragments: 4}}",
      "method={local_sgd: {local_steps: 8, fragments: 2, delay: 2, alpha: 0.5}}");
  const std::string model = GENERATE(kNormed, kMixed);
  const std::string optimizer = GENERATE(kAdamW, kMomentum);
  CAPTURE(workers, method, model, optimizer);
  CheckSame(LocalJob({method, model, optimizer, "train.steps=50"}, 2, workers), 2, workers);
}

TEST_CASE("a job whose gradients are clipped learns on a GPU as it does on the CPU",
          "[device][train]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
               "method={ist: {local_steps: 7}}");
  const std::string pieces = GENERATE("train.micro_batch=0", "train.micro_batch=6");
  CAPTURE(method, pieces);
  CheckSame(
      LocalJob({method, kMomentum, kMixed, pieces, "train.clip_norm=0.3", "train.steps=50"}, 2, 2),
      2, 2);
}

TEST_CASE("a job with muon or rmsprop learns on a GPU as it does on the CPU", "[device][train]") {
  const std::string method = GENERATE("method={local_sgd: {local_steps: 7}}",
                                      "method={local_sgd: {local_steps: 7, average_state: true}}",
                                      "method={ist: {local_steps: 7}}");
  const std::string optimizer = GENERATE(
      "train.optimizer={muon: {learning_rate: 0.005, adamw: {learning_rate: 0.001, "
      "epsilon: 0.001}}}",
      "train.optimizer={rmsprop: {learning_rate: 0.0005, epsilon: 0.01, momentum: 0.5}}");
  CAPTURE(method, optimizer);
  CheckSame(LocalJob({method, optimizer, kMixed, "train.steps=50"}, 2, 2), 2, 2);
}

TEST_CASE("a job with dropout drops the same on a GPU as on the CPU, step after step",
          "[device][train]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}");
  CAPTURE(method);
  CheckSame(LocalJob({method, kMomentum, "train.steps=50",
                      "model.layers=[linear: {units: 61}, batch_norm: {}, relu: {}, "
                      "dropout: {probability: 0.2}, linear: {units: 50}, relu: {}, "
                      "dropout: {probability: 0.4}, linear: {units: 10}]"},
                     2, 2),
            2, 2);
}

TEST_CASE("a job with convolutions learns on a GPU as it does on the CPU", "[device][train]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
               "method={ist: {local_steps: 7}}");
  const std::string hidden = method == "method={ist: {local_steps: 7}}"
                                 ? "linear: {units: 40}, batch_norm: {}, relu: {}, "
                                 : "";
  CAPTURE(method);
  CheckSame(
      LocalJob(
          {method, kMomentum, "train.steps=50", "cluster.workers=2", "model.input=[1, 8, 8]",
           "model.layers=[conv2d: {channels: 8, kernel: 3, padding: 1}, batch_norm: {}, relu: {}, "
           "max_pool: {kernel: 2}, conv2d: {channels: 12, kernel: 3, bias: false}, relu: {}, " +
               hidden + "linear: {units: 10}]"},
          2, 2),
      2, 2);
}

TEST_CASE("a job whose minibatches come in pieces learns on a GPU as on the CPU",
          "[device][train]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
               "method={ist: {local_steps: 7}}");
  // A norm over few rows makes much of a rounding: pieces of 12.
  const bool norms = GENERATE(true, false);
  CAPTURE(method, norms);
  const std::string model = norms ? kMixed
                                  : "model.layers=[linear: {units: 61}, relu: {}, "
                                    "dropout: {probability: 0.3}, linear: {units: 10}]";
  const int workers = 2;
  const std::string batch = norms ? "train.batch_size=36" : "train.batch_size=32";
  CheckSame(LocalJob({method, kMomentum, "train.steps=50", model, batch, "train.micro_batch=12",
                      "cluster.workers=2"},
                     2, workers),
            2, workers);
}

TEST_CASE("subnets are cut, moved and learned on a GPU as on the CPU", "[device][train]") {
  const int workers = GENERATE(1, 3);
  const std::string model = GENERATE(kNormed, kMixed);
  const std::string tail = GENERATE("name=no_tail", "method.ist.tail_steps=14");
  // Whole evaluation, in blocks, and with a subnet's memory used for all in turn.
  const std::string memory =
      GENERATE("name=roomy", "cluster.evaluation_memory=0", "cluster.memory_limit=1");
  CAPTURE(workers, model, tail, memory);
  const bool has_tail = tail != "name=no_tail";
  if (has_tail && (model == kMixed || memory == "cluster.memory_limit=1")) return;
  const v1::Job job = LocalJob({"method={ist: {local_steps: 7}}", model, "train.steps=50", tail,
                                memory, "cluster.workers=" + std::to_string(workers)},
                               2, workers);
  CheckSame(job, 2, workers);
}

}  // namespace tessera
