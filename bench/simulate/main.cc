// What a simulation costs.
//
//   bazel-bin/bench/simulate/simulate [--method async_sgd]... [--tiny]
//
// All times are processor time.
//
//   math   64 workers train a perceptron (784-512-10, batches of 128) for real, and evaluate: time,
//          as a multiple of what the same mathematics takes by itself (as many replicas,
//          steps and evaluated rows, in turns)
//   stub   10,000 workers make 100 exchanges each with 4 servers, without mathematics: exchanges
//          per second (each is one push to every server and the values back) and events per second
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/config/job_reader.h"
#include "common/method/recipe.h"
#include "deploy/simulate/simulation.h"
#include "kernels/devices.h"
#include "worker/data/dataset.h"
#include "worker/data/order.h"
#include "worker/replica/replica.h"

namespace tessera {
namespace {

struct Flags {
  std::vector<std::string> methods;
  int math_workers = 64;
  int math_steps = 10;
  int stub_workers = 10000;
  int stub_steps = 100;
  int rounds = 3;
  bool only_math = false;
  bool only_stub = false;
  bool tiny = false;
};

// Processor time of this process, which has one thread: what else the machine does counts for little.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Dataset MakeData(int64_t rows, int64_t features, int classes) {
  Table table;
  table.rows = rows;
  table.features = features;
  U8Values values(rows * features);
  uint64_t state = 1;
  for (auto& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<uint8_t>(state >> 56);
  }
  Classes labels(rows);
  for (int64_t row = 0; row < rows; ++row) labels[row] = static_cast<int32_t>(row % classes);
  table.values = std::move(values);
  table.labels = std::move(labels);
  ModelEnds ends;
  ends.inputs = features;
  ends.outputs = classes;
  return Dataset(std::move(table), Normalization(), ends);
}

// A job whose mathematics take a known time.
absl::StatusOr<v1::Job> MakeJob(const std::string& method, int64_t inputs, int64_t hidden,
                                int workers, int servers, int batch, int steps) {
  JobSource source;
  source.path = "bench";
  source.text = absl::StrCat(
      "name: bench\nseed: 1\n"
      "data:\n  format: idx\n  directory: data\n  train: {features: a, labels: b}\n"
      "  test: {features: c, labels: d}\n",
      "model:\n  input: [", inputs, "]\n  layers:\n    - linear: {units: ", hidden,
      ", bias: false}\n    - batch_norm\n    - relu\n    - linear: {units: 10}\n",
      "train:\n  batch_size: ", batch, "\n  steps: ", steps,
      "\n  evaluate_every: 0\n  optimizer: {sgd: {learning_rate: 0.01}}\n", "method:\n  ", method,
      ": {",
      method == "ssp"        ? "bound: 3"
      : method == "softsync" ? "pushes: 4"
                             : "",
      "}\n", "cluster: {servers: ", servers, ", workers: ", std::min(workers, 1024), "}\n");
  const JobReading reading = ReadJob(source, JobOptions{/*check_files=*/false});
  if (!reading.ok()) return absl::InvalidArgumentError(FormatJobErrors(reading.errors));
  v1::Job job = reading.job;
  // More than a real job may have.
  job.mutable_cluster()->set_workers(workers);
  return job;
}

// The steps and the evaluation of all workers, without servers or a clock.
absl::Status RunMath(const v1::Job& job, const Datasets& data) {
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(job));
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Backend> backend,
      CreateBackend(job.cluster().device(), job.cluster().threads(), {job.cluster().cudnn()}));
  const int64_t workers = job.cluster().workers();
  std::vector<std::unique_ptr<Replica>> replicas;
  std::vector<EpochOrder> orders;
  OrderCache cache;
  for (int64_t k = 0; k < workers; ++k) {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Replica> replica,
                             Replica::Create(job, recipe, Rank(k), backend.get()));
    replicas.push_back(std::move(replica));
    orders.push_back(EpochOrder(
        {Partition::kGlobal, job.seed(), data.train.rows(), job.train().batch_size(), &cache}));
  }
  for (int64_t step = 0; step < job.train().steps(); ++step) {
    for (int64_t k = 0; k < workers; ++k) {
      if (step % std::max<int64_t>(1, orders[k].steps()) == 0) {
        EpochPlace place;
        place.epoch = static_cast<uint64_t>(step);
        place.rank = Rank(k);
        place.part = k;
        place.parts = workers;
        TESSERA_RETURN_IF_ERROR(orders[k].Begin(place));
      }
      TESSERA_RETURN_IF_ERROR(replicas[k]
                                  ->Train(data.train, orders[k].Rows(step % orders[k].steps()),
                                          {static_cast<uint64_t>(step), 1.0f})
                                  .status());
    }
  }
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<float> constants,
      replicas[0]->Calibrate(data.train, CalibrationRows(job.seed(), data.train.rows())));
  for (int64_t k = 0; k < workers; ++k) {
    const std::vector<uint32_t> rows = EvaluationRows(data.test.rows(), k, workers);
    TESSERA_RETURN_IF_ERROR(replicas[k]->Score(data.test, rows, constants).status());
  }
  return absl::OkStatus();
}

// The machines that are simulated: links as of 10 Gbit/s, workers of unequal speed.
SimulationOptions Cluster(bool stub) {
  SimulationOptions options;
  options.bandwidth = 1'250'000'000;
  options.latency = 100'000;
  options.step_time = 20'000'000;
  options.speed_spread = 0.2;
  options.step_jitter = 0.1;
  options.stub_gradients = stub;
  return options;
}

// Runs a job to its end.
absl::StatusOr<std::unique_ptr<Simulation>> Simulate(const v1::Job& job, const Datasets& data,
                                                     bool stub) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Simulation> simulation,
                           Simulation::Create(job, Cluster(stub), &data));
  while (!simulation->Run(1 << 20)) {
  }
  TESSERA_RETURN_IF_ERROR(simulation->outcome());
  return simulation;
}

// Times a simulated job against its mathematics alone: what is above that is the simulator's cost.
absl::Status BenchMath(const Flags& flags, const std::string& method, const Datasets& data) {
  const int batch = flags.tiny ? 16 : 128;
  TESSERA_ASSIGN_OR_RETURN(const v1::Job job,
                           MakeJob(method, data.train.inputs(), flags.tiny ? 32 : 512,
                                   flags.math_workers, 2, batch, flags.math_steps));
  // The two are measured in turns, so that a slow moment of the machine hits both.
  double alone = 1e30, simulated = 1e30;
  for (int round = 0; round < flags.rounds; ++round) {
    const double begin = CpuSeconds();
    TESSERA_RETURN_IF_ERROR(RunMath(job, data));
    const double middle = CpuSeconds();
    TESSERA_RETURN_IF_ERROR(Simulate(job, data, /*stub=*/false).status());
    alone = std::min(alone, middle - begin);
    simulated = std::min(simulated, CpuSeconds() - middle);
  }
  std::printf("math  %-14s %d workers x %d steps: %.3f s, %.3f times the mathematics alone\n",
              method.c_str(), flags.math_workers, flags.math_steps, simulated, simulated / alone);
  return absl::OkStatus();
}

// Times a job of thousands of workers without mathematics.
absl::Status BenchStub(const Flags& flags, const std::string& method, const Datasets& data) {
  TESSERA_ASSIGN_OR_RETURN(const v1::Job job, MakeJob(method, data.train.inputs(), 32,
                                                      flags.stub_workers, 4, 2, flags.stub_steps));
  const double begin = CpuSeconds();
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Simulation> simulation,
                           Simulate(job, data, /*stub=*/true));
  const double seconds = CpuSeconds() - begin;
  const uint64_t exchanges = simulation->exchanges();
  std::printf(
      "stub  %-14s %d workers: %lu exchanges with 4 servers in %.1f s, %.0f pushes/s, "
      "%.2f million events/s, %.1f simulated s\n",
      method.c_str(), flags.stub_workers, exchanges, seconds, exchanges / seconds,
      simulation->events() / seconds * 1e-6, simulation->seconds());
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  const int64_t inputs = flags.tiny ? 16 : 784;
  const Datasets math{MakeData(flags.tiny ? 2000 : 30000, inputs, 10),
                      MakeData(flags.tiny ? 200 : 10000, inputs, 10)};
  const int64_t stub_rows = 2 * int64_t{flags.stub_workers} * flags.stub_steps;
  const Datasets stub{MakeData(stub_rows, 16, 10), MakeData(100, 16, 10)};
  for (const std::string& method : flags.methods) {
    if (!flags.only_stub) TESSERA_RETURN_IF_ERROR(BenchMath(flags, method, math));
    if (!flags.only_math) TESSERA_RETURN_IF_ERROR(BenchStub(flags, method, stub));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times simulations.");
  app.add_option("--method", flags.methods, "may be repeated; async_sgd");
  app.add_option("--math-workers", flags.math_workers);
  app.add_option("--math-steps", flags.math_steps);
  app.add_option("--stub-workers", flags.stub_workers);
  app.add_option("--stub-steps", flags.stub_steps);
  app.add_flag("--only-math", flags.only_math);
  app.add_flag("--only-stub", flags.only_stub);
  app.add_flag("--tiny", flags.tiny, "small figures, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.methods.empty()) flags.methods = {"async_sgd"};
  if (flags.tiny) {
    flags.math_workers = 4;
    flags.math_steps = 5;
    flags.stub_workers = 50;
    flags.stub_steps = 10;
    flags.rounds = 1;
  }
  tessera::SetLogLevel(tessera::LogLevel::kError);
  const absl::Status status = tessera::Run(flags);
  if (!status.ok()) std::fprintf(stderr, "simulate: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
