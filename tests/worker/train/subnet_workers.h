// A small language for whole runs of subnet training in one process: jobs on the digits, and workers on
// threads of their own.
#ifndef TESSERA_TESTS_WORKER_TRAIN_SUBNET_WORKERS_H_
#define TESSERA_TESTS_WORKER_TRAIN_SUBNET_WORKERS_H_

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/config/job_reader.h"
#include "common/method/train_rows.h"
#include "kernels/devices.h"
#include "tests/worker/train/forwarding_client.h"
#include "tests/worker/train/in_process_servers.h"
#include "tests/worker/train/lone_coordination.h"
#include "tests/worker/train/loss_notes.h"
#include "worker/data/load_datasets.h"
#include "worker/replica/make_replica.h"
#include "worker/replica/subnet_memory.h"
#include "worker/train/train_loop.h"

namespace tessera {

constexpr char kSubnetJob[] = R"(
name: subnets
seed: 5
data:
  format: idx
  directory: deploy/data/optdigits
  train: {features: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz}
  test: {features: test-images-idx3-ubyte.gz, labels: test-labels-idx1-ubyte.gz}
  normalize: {mean: 0.0, stddev: 0.0627451}
model: {input: [64], layers: [linear: {units: 24}, relu: {}, linear: {units: 10}]}
train: {batch_size: 12, steps: 19, evaluate_every: 0, optimizer: {sgd: {learning_rate: 0.05}}}
method: {local_sgd: {local_steps: 7}}
)";

constexpr char kTwoHidden[] =
    "model.layers=[linear: {units: 17}, batch_norm: {}, relu: {}, linear: {units: 13}, "
    "batch_norm: {}, relu: {}, linear: {units: 10}]";
constexpr char kThreeHidden[] =
    "model.layers=[linear: {units: 19, bias: false}, batch_norm: {}, relu: {}, linear: {units: 7}, "
    "relu: {}, linear: {units: 23, bias: false}, batch_norm: {}, relu: {}, "
    "linear: {units: 10, bias: false}, batch_norm: {affine: false}]";

inline v1::Job LocalJob(const std::vector<std::string>& overrides, int servers, int workers) {
  const JobReading reading =
      ReadJob({kSubnetJob, "subnets.yaml", "", overrides}, {/*check_files=*/false});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  v1::Job job = reading.job;
  job.mutable_cluster()->mutable_servers()->set_count(servers);
  job.mutable_cluster()->set_workers(workers);
  return job;
}

inline v1::Job SubnetJob(const std::vector<std::string>& overrides, int servers, int workers) {
  v1::Job job = LocalJob(overrides, servers, workers);
  job.mutable_method()->mutable_ist()->set_local_steps(7);
  return job;
}

inline Datasets DataOf(const v1::Job& job) { return *LoadDatasets(job.data(), {64, 10, false}); }

// Remembers what was about to be replaced by the last pull, which is what has been trained.
class KeepingClient final : public ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    if (dies_at == push.exchange) return absl::CancelledError("died");
    trained.clear();
    for (const auto& array : values) trained.insert(trained.end(), array.begin(), array.end());
    return ForwardingClient::PushPull(push, update_keys, update, value_keys, values);
  }

  std::vector<float> trained;
  // It fails instead of this exchange.
  Exchange dies_at{0};
};

using BackendMaker = std::function<std::unique_ptr<Backend>()>;

inline std::unique_ptr<Backend> OnCpu() { return *CreateBackend("cpu", 1); }

// One worker of a job, on its own thread.
struct Worker {
  Worker(const v1::Job& job, const Datasets* data, InProcessServers* servers, int rank, int parts,
         Exchange first = Exchange(1), uint64_t first_step = 0,
         const BackendMaker& make_backend = OnCpu)
      : backend(make_backend()),
        recipe(*RecipeFor(job)),
        client(servers, MemberId(rank + 1), recipe.payload),
        keeping(&client),
        coordination(rank, parts,
                     *EpochSteps(data->train.rows(), parts, job.train().batch_size())) {
    SubnetMemory memory;
    if (recipe.subnets &&
        (job.cluster().memory_limit() > 0 || job.cluster().evaluation_memory() == 0)) {
      const int64_t limit = job.cluster().memory_limit() > 0 ? job.cluster().memory_limit()
                                                             : std::numeric_limits<int64_t>::max();
      memory = *PlanSubnetMemory(job, recipe, {}, {data->train.rows(), data->test.rows()}, limit);
    }
    auto made = MakeReplica(job, recipe, Rank(rank), first, backend.get(), {}, memory);
    INFO(made.status());
    REQUIRE(made.ok());
    learner = std::make_unique<LossNotes>(*std::move(made));
    TrainLoop::Options options;
    options.job = job;
    options.recipe = recipe;
    options.rank = Rank(rank);
    options.first_exchange = first;
    options.first_step = first_step;
    loop = std::make_unique<TrainLoop>(options, data, learner.get(), &keeping, &coordination);
  }
  void Start() {
    thread = std::thread([this] { status = loop->Run(); });
  }
  void Join() {
    thread.join();
    INFO(status);
    REQUIRE(status.ok());
  }

  std::unique_ptr<Backend> backend;
  const Recipe recipe;
  InProcessClient client;
  KeepingClient keeping;
  LoneCoordination coordination;
  std::unique_ptr<LossNotes> learner;
  std::unique_ptr<TrainLoop> loop;
  std::thread thread;
  absl::Status status;
};

inline std::vector<std::unique_ptr<Worker>> Train(const v1::Job& job, const Datasets* data,
                                                  InProcessServers* servers, int workers,
                                                  const BackendMaker& make_backend = OnCpu) {
  std::vector<std::unique_ptr<Worker>> made;
  for (int k = 0; k < workers; ++k) {
    made.push_back(
        std::make_unique<Worker>(job, data, servers, k, workers, Exchange(1), 0, make_backend));
  }
  for (auto& worker : made) worker->Start();
  for (auto& worker : made) worker->Join();
  return made;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_SUBNET_WORKERS_H_
