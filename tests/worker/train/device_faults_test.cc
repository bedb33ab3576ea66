// A GPU that fails in the middle of a job, and one with too little memory.
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "kernels/cuda/backend.h"
#include "tests/kernels/cuda/emulation/faults.h"
#include "tests/worker/train/subnet_workers.h"
#include "worker/replica/replica.h"

namespace tessera {
namespace {

std::unique_ptr<Backend> OnDevice() {
  auto backend = CreateCudaBackend(0);
  REQUIRE(backend.ok());
  return *std::move(backend);
}

v1::Job JobOf(const std::string& method) {
  return LocalJob({method, kTwoHidden, "train.steps=20"}, 2, 1);
}

}  // namespace

TEST_CASE("a kernel that fails ends the worker with its cause, whichever it is",
          "[device][fault]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
               "method={ist: {local_steps: 7}}");
  CAPTURE(method);
  const v1::Job job = JobOf(method);
  const Datasets data = DataOf(job);
  int failed = 0;
  for (const int64_t launch : {0, 1, 7, 30, 31, 40, 101, 250, 400, 1000000}) {
    CAPTURE(launch);
    InProcessServers cluster(job, *RecipeFor(job), 2, 1);
    Worker worker(job, &data, &cluster, 0, 1, Exchange(1), 0, OnDevice);
    cuda::Faults().launches_left = launch;
    worker.Start();
    worker.thread.join();
    const bool reached = cuda::Faults().launches_left < 0;
    cuda::Faults().launches_left = -1;
    failed += reached ? 1 : 0;
    CHECK(worker.status.ok() == !reached);
    if (!reached) continue;
    CHECK(worker.status.code() == absl::StatusCode::kInternal);
    CHECK(std::string(worker.status.message()) ==
          "cuda:0: a kernel: an illegal memory access was encountered");
  }
  CHECK(failed >= 8);
}

TEST_CASE("steps are repeated from records where the GPU takes them, and are the same without",
          "[device][fault]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
               "method={ist: {local_steps: 7}}");
  const int micro_batch = GENERATE(0, 5);
  CAPTURE(method, micro_batch);
  v1::Job job = JobOf(method);
  job.mutable_train()->set_micro_batch(micro_batch);
  const Datasets data = DataOf(job);
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<double>> losses;
  for (const char* const fault : {"none", "lost", "not begun"}) {
    CAPTURE(fault);
    const bool records = fault == std::string("none");
    cuda::Faults().records_nothing = fault == std::string("lost");
    cuda::Faults().begins_no_record = fault == std::string("not begun");
    cuda::Faults().replays = 0;
    InProcessServers cluster(job, *RecipeFor(job), 2, 1);
    const auto workers = Train(job, &data, &cluster, 1, OnDevice);
    // Three places for batches, and two for sums, each pair recorded at its second use: forward and
    // backward. Of a minibatch's three pieces each has the same place in all steps.
    CHECK((cuda::Faults().replays > 10) == records);
    parameters.push_back(cluster.Parameters());
    losses.push_back(workers[0]->learner->losses());
  }
  cuda::Faults().records_nothing = cuda::Faults().begins_no_record = false;
  for (const size_t other : {1, 2}) {
    CHECK(parameters[0] == parameters[other]);
    CHECK(losses[0] == losses[other]);
  }
}

TEST_CASE("dropout is repeated from records, and draws anew each time", "[device][fault]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 3}}");
  const std::string pieces = GENERATE("train.micro_batch=0", "train.micro_batch=7");
  const v1::Job job =
      LocalJob({method, "train.steps=40", pieces,
                "model.layers=[linear: {units: 20}, relu: {}, dropout: {probability: 0.3}, "
                "linear: {units: 10}]"},
               2, 1);
  const Datasets data = DataOf(job);
  std::vector<std::vector<double>> losses;
  for (const bool records : {true, false}) {
    cuda::Faults().records_nothing = !records;
    cuda::Faults().replays = 0;
    InProcessServers cluster(job, *RecipeFor(job), 2, 1);
    const auto workers = Train(job, &data, &cluster, 1, OnDevice);
    // All but the first two uses of each of six pairs of places, forward and backward.
    if (records) CHECK(cuda::Faults().replays >= 60);
    losses.push_back(workers[0]->learner->losses());
  }
  cuda::Faults().records_nothing = false;
  CHECK(losses[0] == losses[1]);
  InProcessServers cluster(job, *RecipeFor(job), 2, 1);
  const auto workers = Train(job, &data, &cluster, 1, OnCpu);
  const std::vector<double>& want = workers[0]->learner->losses();
  REQUIRE(losses[0].size() == want.size());
  for (size_t step = 0; step < want.size(); ++step) {
    CHECK(losses[0][step] == Approx(want[step]).epsilon(1e-3));
  }
}

TEST_CASE("where an exchange follows, the last step leaves nothing to compute for it",
          "[device][fault]") {
  const std::string method = GENERATE("method={local_sgd: {local_steps: 7}}",
                                      "method={local_sgd: {local_steps: 7, average_state: true}}",
                                      "method={local_sgd: {local_steps: 7, overlap: true}}",
                                      "method={ist: {local_steps: 7}}");
  const bool last = GENERATE(true, false);
  CAPTURE(method, last);
  const v1::Job job =
      LocalJob({method, kTwoHidden, "train.optimizer.sgd.momentum=0.9", "cluster.workers=1"}, 2, 1);
  const Datasets data = DataOf(job);
  const std::unique_ptr<Backend> backend = OnDevice();
  const auto learner = *MakeReplica(job, *RecipeFor(job), Rank(0), Exchange(1), backend.get(), {});
  REQUIRE(learner->AdoptValues().ok());
  const std::vector<uint32_t> rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  REQUIRE(learner->Train(data.train, rows, {0, 1.0f, last, {}}).ok());
  REQUIRE(backend->Finish().ok());
  cuda::Faults().launches_left = 0;
  const absl::Status formed = learner->FormUpdate();
  cuda::Faults().launches_left = -1;
  // Deltas are a kernel's; a subnet is sent as it is.
  CHECK(formed.ok() == (last || method == "method={ist: {local_steps: 7}}"));
}

TEST_CASE("where a minibatch does not fit the GPU its pieces do", "[device][fault][pieces]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
               "method={ist: {local_steps: 7}}");
  CAPTURE(method);
  const std::vector<std::string> keys = {method, kTwoHidden, "train.batch_size=512"};
  const v1::Job whole = LocalJob(keys, 2, 1);
  v1::Job pieces = whole;
  pieces.mutable_train()->set_micro_batch(24);
  const Datasets data = DataOf(whole);
  std::vector<uint32_t> rows(512);
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = i;
  const auto train = [&](const v1::Job& job, Backend* backend) -> absl::Status {
    auto learner = MakeReplica(job, *RecipeFor(job), Rank(0), Exchange(1), backend, {});
    if (!learner.ok()) return learner.status();
    absl::Status status = (*learner)->AdoptValues();
    if (status.ok()) status = (*learner)->Train(data.train, rows, {0, 1.0f, true, rows}).status();
    if (status.ok()) status = (*learner)->Train(data.train, rows, {1, 1.0f, true, {}}).status();
    return status.ok() ? (*learner)->FormUpdate() : status;
  };
  // What the sums say of the pieces, inputs in their three places on the device, and kernels' scratch.
  const Recipe recipe = *RecipeFor(whole);
  const int64_t need = recipe.subnets ? PlanSubnetMemory(pieces, recipe, {}, {})->total()
                                      : *Replica::MemoryNeeded(pieces, recipe, 0);
  const int64_t bytes = need + 3 * 24 * 65 * 4 + (int64_t{64} << 10);
  const std::unique_ptr<Backend> backend = OnDevice();
  cuda::Faults().memory_bytes = bytes;
  const absl::Status refused = train(whole, backend.get());
  const absl::Status trained = train(pieces, backend.get());
  cuda::Faults().memory_bytes = std::numeric_limits<int64_t>::max();
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  INFO(trained);
  CHECK(trained.ok());
}

TEST_CASE("a model that does not fit the GPU is a status, however much is missing",
          "[device][fault]") {
  const std::string method = GENERATE(
      "method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
      "method={local_sgd: {local_steps: 7, overlap: true}}", "method={ist: {local_steps: 7}}");
  const v1::Job job = JobOf(method);
  int refused = 0;
  for (int64_t bytes = 0;; bytes += 512) {
    const std::unique_ptr<Backend> backend = OnDevice();
    cuda::Faults().memory_bytes = bytes;
    const auto replica = MakeReplica(job, *RecipeFor(job), Rank(0), Exchange(1), backend.get(), {});
    cuda::Faults().memory_bytes = std::numeric_limits<int64_t>::max();
    if (replica.ok()) break;
    ++refused;
    REQUIRE(replica.status().code() == absl::StatusCode::kResourceExhausted);
    REQUIRE(std::string(replica.status().message()).find("cuda:0: no room for ") == 0);
  }
  CHECK(refused >= 10);
}

}  // namespace tessera
