// What a GPU reaches: every kernel against the device's copy, products and whole training steps
// against its largest matrix rate, all measured in this run; and, from reports of jobs that were run
// before, what workers on it reach end to end.
//
//   bazel run --config=cuda //bench/gpu [-- --device cuda:0 --tiny]
//   gpu --reports ist_1=ist_1.json,ist_4=ist_4.json
//   gpu --same ist_cpu.json,ist_cuda.json       two jobs that differ in their device alone
//
// Where an aim is set (80 % of the copy for arrays of 64 MiB, 70 % of the matrix rate for the step in
// bf16, less than 10 % of a job's time waited) the line ends with `met` or `MISSED`.
//
// Kernels and steps are checked against the CPU backend before they are timed. deploy/gpu_bundle.sh
// packs it for machines without build tools.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/gpu/kernels.h"
#include "common/base/check.h"
#include "kernels/devices.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"

namespace tessera {
namespace {

struct Flags {
  std::string device = "cuda";
  int64_t rows = 2048;
  int64_t columns = 8192;
  int64_t width = 8192;  // of the layers of the step, and of the large product
  int64_t batch = 512;
  double seconds = 0.5;
  bool tiny = false;
  std::vector<std::string> reports;
  std::vector<std::string> same;
};

constexpr double kStepAim = 0.7;
constexpr double kWaitsMax = 0.1;
// Of the training loss, between devices.
constexpr double kLossDifference = 1e-3;

const char* Verdict(bool has_aim, bool met) { return !has_aim ? "" : met ? "  met" : "  MISSED"; }

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kBf16};
constexpr const char* kNames[] = {"f32", "tf32", "bf16"};

bool Has(Backend& device, Precision precision) {
  if (precision == Precision::kTf32) return device.linear_tf32().ok();
  if (precision == Precision::kBf16) return device.linear_bf16().ok();
  return true;
}

v1::Model Perceptron(int64_t width, int layers) {
  v1::Model model;
  model.set_loss("softmax_cross_entropy");
  model.add_input(width);
  for (int i = 0; i < layers; ++i) {
    model.add_layers()->mutable_linear()->set_units(width);
    v1::BatchNorm* const norm = model.add_layers()->mutable_batch_norm();
    norm->set_affine(i + 1 < layers);
    norm->set_epsilon(1e-5);
    if (i + 1 < layers) model.add_layers()->mutable_relu();
  }
  return model;
}

absl::Status CheckSizes(const Flags& flags) {
  if (flags.rows < 1 || flags.columns < 4 || flags.columns % 4 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--rows is ", flags.rows, " and --columns ",
                                                   flags.columns,
                                                   ", want 1 or more, and a multiple of 4"));
  }
  if (flags.width >= 4 && flags.width % 4 == 0 && flags.batch >= 1 && flags.seconds > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--width is ", flags.width, ", --batch ", flags.batch, " and --seconds ",
                   flags.seconds, ", want a multiple of 4, 1 or more, and more than 0"));
}

absl::Status Kernels(const Flags& flags, Backend& device) {
  std::vector<KernelRate> rates;
  TESSERA_ASSIGN_OR_RETURN(rates, KernelRates(device, {flags.rows, flags.columns}, flags.seconds));
  std::printf("\n%-34s %12s %8s\n", "kernel", "GB/s", "of copy");
  for (const KernelRate& rate : rates) {
    const double share = rate.bytes_per_second / rates.front().bytes_per_second;
    std::printf("%-34s %12.1f %8.2f%s\n", rate.name.c_str(), rate.bytes_per_second * 1e-9, share,
                Verdict(rate.aim > 0, share >= rate.aim));
  }
  return absl::OkStatus();
}

// FLOP/s of width^3, of random numbers: zeros would run faster.
absl::StatusOr<double> ProductRate(const Flags& flags, Backend& device, Precision precision) {
  const int64_t n = flags.width;
  std::mt19937 random(3);
  std::vector<float> values(n * n);
  for (float& value : values) value = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
  Memory& memory = device.memory();
  TESSERA_ASSIGN_OR_RETURN(const Buffer<float> x, Buffer<float>::Create(memory, n * n));
  TESSERA_ASSIGN_OR_RETURN(const Buffer<float> y, Buffer<float>::Create(memory, n * n));
  TESSERA_ASSIGN_OR_RETURN(const Buffer<Bf16> halves, Buffer<Bf16>::Create(memory, n * n));
  memory.CopyIn(values.data(), x.bytes(), x.data());
  device.vector().Round(n * n, x.data(), halves.data());
  LinearKernel<float>* f32 = &device.linear();
  LinearKernel<Bf16>* bf16 = nullptr;
  if (precision == Precision::kTf32) {
    TESSERA_ASSIGN_OR_RETURN(f32, device.linear_tf32());
  }
  if (precision == Precision::kBf16) {
    TESSERA_ASSIGN_OR_RETURN(bf16, device.linear_bf16());
  }
  TESSERA_ASSIGN_OR_RETURN(
      const double each, SecondsPerCall(device, flags.seconds, [&] {
        if (bf16 != nullptr) {
          bf16->Forward({n, n, n}, halves.data(), halves.data(), nullptr, y.data());
        } else {
          f32->Forward({n, n, n}, x.data(), x.data(), nullptr, y.data());
        }
      }));
  return 2.0 * static_cast<double>(n) * n * n / each;
}

// The first losses of a small step against the CPU's.
absl::Status CheckSteps(Backend& device, Precision precision) {
  const v1::Model model = Perceptron(64, 2);
  std::unique_ptr<Backend> cpu;
  TESSERA_ASSIGN_OR_RETURN(cpu, CreateBackend("cpu", 1));
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.01);
  std::mt19937 random(5);
  std::vector<float> inputs(32 * 64);
  for (float& x : inputs) x = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
  std::vector<int32_t> labels(32);
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % 64);
  Batch batch;
  batch.rows = 32;
  batch.inputs = inputs.data();
  batch.labels = labels.data();
  double losses[2][10];
  for (Backend* const backend : {cpu.get(), &device}) {
    Network::Options options;
    options.batch_max = 32;
    options.precision = backend == &device ? precision : Precision::kF32;
    std::unique_ptr<Network> network;
    TESSERA_ASSIGN_OR_RETURN(network, Network::Create(model, options, *backend));
    network->SetInitialValues(1);
    std::unique_ptr<LocalOptimizer> optimizer;
    TESSERA_ASSIGN_OR_RETURN(optimizer, LocalOptimizer::Create(sgd, *network, *backend));
    for (uint64_t step = 0; step < 10; ++step) {
      TESSERA_ASSIGN_OR_RETURN(const LossAndCount got, network->TrainStep(batch, {0, step, 0}));
      losses[backend == &device ? 1 : 0][step] = got.loss;
      TESSERA_RETURN_IF_ERROR(optimizer->Step({}));
    }
  }
  const double bound = precision == Precision::kF32 ? 1e-3 : 5e-2;
  for (int step = 0; step < 10; ++step) {
    if (std::fabs(losses[1][step] / losses[0][step] - 1) < bound) continue;
    return absl::InternalError("a training step's losses are not the CPU's");
  }
  return absl::OkStatus();
}

// Steps as MinibatchSteps takes them, with up to `begun_max` begun at a time; `optimizer` may be null.
absl::StatusOr<double> SecondsPerStep(double seconds, Backend& device, Network* network,
                                      LocalOptimizer* optimizer, const Batch& batch,
                                      int begun_max) {
  uint64_t step = 0;
  GradientWork* const work = network->takes_work() ? optimizer : nullptr;
  const auto run = [&]() -> absl::Status {
    const StepKey key{0, ++step, 0};
    Update update;
    update.number = step;
    if (work != nullptr) optimizer->Begin(update);
    if (optimizer != nullptr && step > 1) network->KeepRounded();
    TESSERA_RETURN_IF_ERROR(network->holds_next() ? network->BeginStepOnNext(key, work)
                                                  : network->BeginStep(batch, key, work));
    if (optimizer != nullptr && work == nullptr) {
      TESSERA_RETURN_IF_ERROR(optimizer->Step(update));
    }
    if (network->wants_next()) TESSERA_RETURN_IF_ERROR(network->SendNext(batch));
    while (network->begun() >= begun_max) TESSERA_RETURN_IF_ERROR(network->EndStep().status());
    return absl::OkStatus();
  };
  absl::Status status;
  TESSERA_ASSIGN_OR_RETURN(const double each,
                           SecondsPerCall(device, seconds, [&] { status.Update(run()); }));
  TESSERA_RETURN_IF_ERROR(status);
  while (network->begun() > 0) TESSERA_RETURN_IF_ERROR(network->EndStep().status());
  return each;
}

// What a small step loses by being waited for: the device has nothing to do until the host has queued the
// next one.
absl::Status SmallSteps(const Flags& flags, Backend& device) {
  constexpr int64_t kWidth = 256, kRows = 64;
  const std::vector<float> inputs(kRows * kWidth, 0.5f);
  const std::vector<int32_t> labels(kRows, 1);
  Batch batch;
  batch.rows = kRows;
  batch.inputs = inputs.data();
  batch.labels = labels.data();
  Network::Options options;
  options.batch_max = kRows;
  std::unique_ptr<Network> network;
  TESSERA_ASSIGN_OR_RETURN(network, Network::Create(Perceptron(kWidth, 2), options, device));
  network->SetInitialValues(1);
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.01);
  std::unique_ptr<LocalOptimizer> optimizer;
  TESSERA_ASSIGN_OR_RETURN(optimizer, LocalOptimizer::Create(sgd, *network, device));
  std::printf("\n%-34s %12s %8s\n", "small steps, f32", "us", "of first");
  double waited = 0;
  for (int begun_max = 1; begun_max <= kStepsBegunMax; ++begun_max) {
    TESSERA_ASSIGN_OR_RETURN(const double each, SecondsPerStep(flags.seconds, device, network.get(),
                                                               optimizer.get(), batch, begun_max));
    if (begun_max == 1) waited = each;
    std::printf("%-34s %12.1f %8.2f\n",
                begun_max == 1 ? "each waited for" : "the next begun before the wait", each * 1e6,
                each / waited);
  }
  return absl::OkStatus();
}

absl::Status Steps(const Flags& flags, Backend& device) {
  const v1::Model model = Perceptron(flags.width, 2);
  std::vector<float> inputs(flags.batch * flags.width);
  std::mt19937 random(5);
  for (float& x : inputs) x = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
  std::vector<int32_t> labels(flags.batch);
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % flags.width);
  Batch batch;
  batch.rows = flags.batch;
  batch.inputs = inputs.data();
  batch.labels = labels.data();
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.01);
  // Two layers forward and two weight gradients; the first one has no input gradient.
  const double flops = 2.0 * 5 * flags.batch * flags.width * flags.width;
  std::printf("\n%-34s %12s %8s\n", "products and steps", "TFLOP/s", "of large");
  for (int p = 0; p < 3; ++p) {
    if (!Has(device, kPrecisions[p])) continue;
    TESSERA_RETURN_IF_ERROR(CheckSteps(device, kPrecisions[p]));
    TESSERA_ASSIGN_OR_RETURN(const double limit, ProductRate(flags, device, kPrecisions[p]));
    std::printf("%-34s %12.1f %8.2f\n",
                absl::StrCat(kNames[p], " product of ", flags.width, "^3").c_str(), limit * 1e-12,
                1.0);
    Network::Options options;
    options.batch_max = flags.batch;
    options.precision = kPrecisions[p];
    std::unique_ptr<Network> network;
    TESSERA_ASSIGN_OR_RETURN(network, Network::Create(model, options, device));
    network->SetInitialValues(1);
    std::unique_ptr<LocalOptimizer> optimizer;
    TESSERA_ASSIGN_OR_RETURN(optimizer, LocalOptimizer::Create(sgd, *network, device));
    // With and without the update, which moves 12 bytes for each parameter whatever the batch.
    for (const bool updates : {false, true}) {
      TESSERA_ASSIGN_OR_RETURN(
          const double each,
          SecondsPerStep(flags.seconds, device, network.get(), updates ? optimizer.get() : nullptr,
                         batch, network->runs_ahead() ? kStepsBegunMax : 1));
      const bool has_aim = updates && kPrecisions[p] == Precision::kBf16;
      std::printf(
          "%-34s %12.1f %8.2f%s\n",
          absl::StrCat(kNames[p], updates ? " step, batch " : " gradient, batch ", flags.batch)
              .c_str(),
          flops / each * 1e-12, flops / each / limit,
          Verdict(has_aim, flops / each >= kStepAim * limit));
    }
  }
  return absl::OkStatus();
}

// name=report.json, as `tessera run --report` writes it.
absl::Status Reports(const std::vector<std::string>& reports) {
  std::printf("\n%-26s %12s %10s %8s %8s %8s\n", "job", "examples/s", "compute s", "waits", "GB/s",
              "loss");
  for (const std::string& item : reports) {
    const std::vector<std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    std::ifstream file(parts.back());
    const nlohmann::json report = nlohmann::json::parse(file, nullptr, false);
    if (report.is_discarded()) {
      return absl::InvalidArgumentError(absl::StrCat(parts.back(), ": no report"));
    }
    double compute = 0, rest = 0;
    for (const auto& phase : report["phases"]) {
      compute += phase["compute_seconds"].get<double>();
      for (const char* other : {"pull_seconds", "push_seconds", "wait_seconds"}) {
        rest += phase[other].get<double>();
      }
    }
    const double waits = rest / (compute + rest);
    // What was moved in the time that was waited: near the link's own rate, nothing but the link is left.
    const auto& traffic = report["traffic"];
    const double moved =
        traffic["push_payload_bytes"].get<double>() + traffic["pull_payload_bytes"].get<double>();
    const bool has_aim = parts.front().find("overlap") != std::string::npos;
    std::printf("%-26s %12.1f %10.2f %8.2f %8.2f %8.4f%s\n", parts.front().c_str(),
                report["examples_per_second"].get<double>(), compute, waits, moved / rest * 1e-9,
                report["final"]["train_loss"].get<double>(), Verdict(has_aim, waits < kWaitsMax));
  }
  return absl::OkStatus();
}

// Two reports of one job on different devices: the same traffic to the byte, and nearly the same losses.
absl::Status Same(const std::vector<std::string>& paths) {
  if (paths.size() != 2) return absl::InvalidArgumentError("--same: want two reports");
  nlohmann::json reports[2];
  for (int i = 0; i < 2; ++i) {
    std::ifstream file(paths[i]);
    reports[i] = nlohmann::json::parse(file, nullptr, false);
    if (reports[i].is_discarded()) {
      return absl::InvalidArgumentError(absl::StrCat(paths[i], ": no report"));
    }
  }
  for (const char* key : {"push_payload_bytes", "pull_payload_bytes", "exchanges"}) {
    const auto a = reports[0]["traffic"][key].get<uint64_t>(),
               b = reports[1]["traffic"][key].get<uint64_t>();
    std::printf("%-26s %16llu %16llu\n", key, static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
    if (a != b) return absl::InternalError(absl::StrCat(key, " differ"));
  }
  const auto a = reports[0]["final"]["train_loss"].get<double>(),
             b = reports[1]["final"]["train_loss"].get<double>();
  std::printf("%-26s %16.6f %16.6f\n", "train_loss", a, b);
  if (std::fabs(a / b - 1) <= kLossDifference) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("train_loss differs by more than ", kLossDifference));
}

absl::Status Run(const Flags& flags) {
  if (!flags.reports.empty()) return Reports(flags.reports);
  if (!flags.same.empty()) return Same(flags.same);
  TESSERA_RETURN_IF_ERROR(CheckSizes(flags));
  std::unique_ptr<Backend> device;
  TESSERA_ASSIGN_OR_RETURN(device, CreateBackend(flags.device, 1));
  std::printf("%s\narrays of %.1f MiB\n", device->description().c_str(),
              static_cast<double>(flags.rows * flags.columns) * 4 / (1 << 20));
  TESSERA_RETURN_IF_ERROR(Kernels(flags, *device));
  TESSERA_RETURN_IF_ERROR(Steps(flags, *device));
  return SmallSteps(flags, *device);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times a GPU's kernels, products and training steps against its own limits.");
  app.add_option("--device", flags.device, "as cluster.device");
  app.add_option("--rows", flags.rows, "of the kernels' matrices");
  app.add_option("--columns", flags.columns, "of the kernels' matrices, a multiple of 4");
  app.add_option("--width", flags.width, "of the step's layers and the large product");
  app.add_option("--batch", flags.batch, "rows of the step");
  app.add_option("--seconds", flags.seconds, "to measure each for");
  app.add_option("--reports", flags.reports, "name=report.json of jobs, instead")->delimiter(',');
  app.add_option("--same", flags.same, "two reports of one job, instead")->delimiter(',');
  app.add_flag("--tiny", flags.tiny, "small sizes for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.rows = 96;
    flags.columns = 128;
    flags.width = 128;
    flags.batch = 32;
    flags.seconds = 0.01;
  }
  const absl::Status status = tessera::Run(flags);
  if (!status.ok()) std::fprintf(stderr, "gpu: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
