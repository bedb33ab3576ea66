#include "bench/gpu/steps.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/gpu/convolutions.h"
#include "bench/gpu/kernels.h"
#include "bench/gpu/verdict.h"
#include "common/base/check.h"
#include "kernels/devices.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"

namespace tessera {
namespace {

constexpr double kStepAim = 0.7;
// Rows of the larger batch in bf16, whose products outweigh the update, for each of the batch.
constexpr int64_t kLarger = 8;
// Rows of the batch for each image that is convolved.
constexpr int64_t kRowsPerImage = 4;

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kBf16};
constexpr const char* kNames[] = {"f32", "tf32", "bf16"};

bool Has(Backend& device, Precision precision) {
  if (precision == Precision::kTf32) return device.linear_tf32().ok();
  if (precision == Precision::kBf16) return device.linear_bf16().ok();
  return true;
}

float Uniform(std::mt19937* random) { return static_cast<float>((*random)() >> 8) * 0x1p-23f - 1; }

// A network of equal layers, whose products are most of the step.
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

v1::Optimizer Sgd() {
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.01);
  return sgd;
}

struct OwnBatch {
  OwnBatch(int64_t rows, int64_t width, uint32_t seed) : inputs(rows * width), labels(rows) {
    std::mt19937 random(seed);
    for (float& x : inputs) x = Uniform(&random);
    for (int32_t& label : labels) label = static_cast<int32_t>(random() % width);
    view.rows = rows;
    view.inputs = inputs.data();
    view.labels = labels.data();
  }

  std::vector<float> inputs;
  std::vector<int32_t> labels;
  Batch view;
};

// One batch for every step of a network, in the network's own room: each of its places is written once. What
// writing it costs the host is measured apart.
class RepeatedBatch {
 public:
  explicit RepeatedBatch(const OwnBatch* batch) : batch_(*batch) {}

  Batch In(Network* network) {
    const BatchPlace place = network->input().Room(batch_.view.rows, /*has_labels=*/true);
    if (place.inputs == nullptr || place.labels == nullptr) return batch_.view;
    if (std::find(filled_.begin(), filled_.end(), place.inputs) == filled_.end()) {
      std::copy(batch_.inputs.begin(), batch_.inputs.end(), place.inputs);
      std::copy(batch_.labels.begin(), batch_.labels.end(), place.labels);
      filled_.push_back(place.inputs);
    }
    Batch batch = batch_.view;
    batch.inputs = place.inputs;
    batch.labels = place.labels;
    return batch;
  }

 private:
  const OwnBatch& batch_;
  std::vector<const float*> filled_;
};

// FLOP/s of width^3, of random numbers: zeros would run faster.
absl::StatusOr<double> ProductRate(const StepSizes& sizes, Backend& device, Precision precision) {
  const int64_t n = sizes.width;
  std::mt19937 random(3);
  std::vector<float> values(n * n);
  for (float& value : values) value = Uniform(&random);
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
      const double each, SecondsPerCall(device, sizes.seconds, [&] {
        if (bf16 != nullptr) {
          bf16->Forward({n, n, n}, halves.data(), halves.data(), nullptr, y.data());
        } else {
          f32->Forward({n, n, n}, x.data(), x.data(), nullptr, y.data());
        }
      }));
  return 2.0 * static_cast<double>(n) * n * n / each;
}

// Whether the first losses of a small step are the CPU's.
absl::StatusOr<bool> LossesAreRight(Backend& device, Precision precision) {
  const v1::Model model = Perceptron(64, 2);
  std::unique_ptr<Backend> cpu;
  TESSERA_ASSIGN_OR_RETURN(cpu, CreateBackend("cpu", 1));
  const OwnBatch batch(32, 64, 5);
  double losses[2][10];
  for (Backend* const backend : {cpu.get(), &device}) {
    Network::Options options;
    options.batch_max = 32;
    options.precision = backend == &device ? precision : Precision::kF32;
    std::unique_ptr<Network> network;
    TESSERA_ASSIGN_OR_RETURN(network, Network::Create(model, options, *backend));
    network->arrays().SetInitialValues(1);
    std::unique_ptr<LocalOptimizer> optimizer;
    TESSERA_ASSIGN_OR_RETURN(optimizer, LocalOptimizer::Create(Sgd(), *network, *backend));
    for (uint64_t step = 0; step < 10; ++step) {
      TESSERA_ASSIGN_OR_RETURN(const LossAndCount got,
                               network->steps().TrainStep(batch.view, {0, step, 0}));
      losses[backend == &device ? 1 : 0][step] = got.loss;
      TESSERA_RETURN_IF_ERROR(optimizer->Step({}));
    }
  }
  const double bound = precision == Precision::kF32 ? 1e-3 : 5e-2;
  for (int step = 0; step < 10; ++step) {
    if (std::fabs(losses[1][step] / losses[0][step] - 1) < bound) continue;
    return false;
  }
  return true;
}

// Steps as MinibatchSteps takes them, with up to `begun_max` begun at a time; `optimizer` may be null.
absl::StatusOr<double> SecondsPerStep(double seconds, Backend& device, Network* network,
                                      LocalOptimizer* optimizer, RepeatedBatch* batches,
                                      int begun_max) {
  uint64_t step = 0;
  GradientWork* const work = network->steps().takes_work() ? optimizer : nullptr;
  const auto run = [&]() -> absl::Status {
    const StepKey key{0, ++step, 0};
    Update update;
    update.number = step;
    if (work != nullptr) optimizer->Begin(update);
    // Without an optimizer nothing moves parameters; with one it has rounded them.
    if (step > 1) network->pass().KeepRounded();
    TESSERA_RETURN_IF_ERROR(network->input().holds_next()
                                ? network->steps().BeginStepOnNext(key, work)
                                : network->steps().BeginStep(batches->In(network), key, work));
    if (optimizer != nullptr && work == nullptr) {
      TESSERA_RETURN_IF_ERROR(optimizer->Step(update));
    }
    if (network->input().wants_next()) {
      TESSERA_RETURN_IF_ERROR(network->input().SendNext(batches->In(network)));
    }
    while (network->steps().begun() >= begun_max) {
      TESSERA_RETURN_IF_ERROR(network->steps().EndStep().status());
    }
    return absl::OkStatus();
  };
  absl::Status status;
  TESSERA_ASSIGN_OR_RETURN(const double each,
                           SecondsPerCall(device, seconds, [&] { status.Update(run()); }));
  TESSERA_RETURN_IF_ERROR(status);
  while (network->steps().begun() > 0) TESSERA_RETURN_IF_ERROR(network->steps().EndStep().status());
  return each;
}

struct Trained {
  std::unique_ptr<Network> network;
  std::unique_ptr<LocalOptimizer> optimizer;
};

// A network with its optimizer and its batches in place, ready for a step.
absl::StatusOr<Trained> Make(const v1::Model& model, int64_t batch, Precision precision,
                             Backend& device) {
  Network::Options options;
  options.batch_max = batch;
  options.precision = precision;
  Trained trained;
  TESSERA_ASSIGN_OR_RETURN(trained.network, Network::Create(model, options, device));
  trained.network->arrays().SetInitialValues(1);
  TESSERA_ASSIGN_OR_RETURN(trained.optimizer,
                           LocalOptimizer::Create(Sgd(), *trained.network, device));
  return trained;
}

// What a batch's lines are held to: FLOP/s of the large product, and whether there is a verdict.
struct BatchAims {
  double limit = 0;
  bool has_verdict = false;
};

// One line, or two: without the update and with it.
absl::Status TimeBatch(const StepSizes& sizes, int64_t rows, int p, bool gradient_too,
                       const BatchAims& aims, const DeviceRates& rates, Backend& device) {
  const OwnBatch batch(rows, sizes.width, 5);
  RepeatedBatch batches(&batch);
  TESSERA_ASSIGN_OR_RETURN(const Trained trained,
                           Make(Perceptron(sizes.width, 2), rows, kPrecisions[p], device));
  Network* const network = trained.network.get();
  const bool is_bf16 = kPrecisions[p] == Precision::kBf16;
  // Two layers forward and two weight gradients; the first one has no input gradient.
  constexpr double kProducts = 5, kWeightProducts = 2;
  const double flops = 2.0 * kProducts * rows * sizes.width * sizes.width;
  // Reads parameter and gradient, writes the parameter, for bf16 rounded as well: whatever the batch. Where weights
  // step by their products there is no gradient to read, and the rest moves while those products are computed.
  const double update_bytes = (is_bf16 ? 14.0 : 12.0) * network->shape().size;
  const double product_step_bytes = 10.0 * network->shape().size;
  const double batch_bytes = 4.0 * (batch.inputs.size() + batch.labels.size());
  const double link_seconds = network->input().runs_ahead() ? batch_bytes / rates.to_device : 0;
  for (const bool updates : {false, true}) {
    if (!updates && !gradient_too) continue;
    const int64_t product_steps_before = device.shortcuts().product_steps;
    TESSERA_ASSIGN_OR_RETURN(
        const double each,
        SecondsPerStep(sizes.seconds, device, network, updates ? trained.optimizer.get() : nullptr,
                       &batches, network->input().runs_ahead() ? kStepsBegunMax : 1));
    const double products = flops / aims.limit, share = products / each;
    double computes = products + (updates ? update_bytes / rates.copy : 0);
    if (device.shortcuts().product_steps > product_steps_before) {
      const double weights = products * kWeightProducts / kProducts;
      computes = products - weights + std::max(weights, product_step_bytes / rates.copy);
    }
    const double at_best = products / std::max(computes, link_seconds);
    std::printf(
        "%-34s %12.1f %8.2f %8.2f%s\n",
        absl::StrCat(kNames[p], updates ? " step, batch " : " gradient, batch ", rows).c_str(),
        flops / each * 1e-12, share, at_best,
        Verdict(updates && aims.has_verdict, share >= kStepAim));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TimeSteps(const StepSizes& sizes, const DeviceRates& rates, Backend& device,
                       Backend& by_products, int* wrong) {
  std::printf("\n%-34s %12s %8s %8s\n", "products and steps", "TFLOP/s", "of large", "at best");
  for (int p = 0; p < 3; ++p) {
    if (!Has(device, kPrecisions[p])) continue;
    const bool is_bf16 = kPrecisions[p] == Precision::kBf16;
    TESSERA_ASSIGN_OR_RETURN(const bool right, LossesAreRight(device, kPrecisions[p]));
    if (!right) {
      TellWrong(absl::StrCat(kNames[p], ": a training step's losses are not the CPU's"), wrong);
    }
    TESSERA_ASSIGN_OR_RETURN(const double limit, ProductRate(sizes, device, kPrecisions[p]));
    std::printf("%-34s %12.1f %8.2f\n",
                absl::StrCat(kNames[p], " product of ", sizes.width, "^3").c_str(), limit * 1e-12,
                1.0);
    TESSERA_RETURN_IF_ERROR(TimeConvolutions(kNames[p], kPrecisions[p],
                                             std::max<int64_t>(1, sizes.batch / kRowsPerImage),
                                             limit, sizes.seconds, device, by_products, wrong));
    TESSERA_RETURN_IF_ERROR(TimeBatch(sizes, sizes.batch, p, /*gradient_too=*/true,
                                      {limit, is_bf16 && right}, rates, device));
    if (!is_bf16) continue;
    TESSERA_RETURN_IF_ERROR(TimeBatch(sizes, kLarger * sizes.batch, p, /*gradient_too=*/false,
                                      {limit, false}, rates, device));
  }
  return absl::OkStatus();
}

absl::Status TimeBatches(const StepSizes& sizes, Backend& device) {
  // The rows of so many batches are more than caches hold.
  constexpr int64_t kBatches = 16;
  constexpr int kGatherThreadsMax = 8;
  TESSERA_ASSIGN_OR_RETURN(const Trained trained,
                           Make(Perceptron(sizes.width, 1), sizes.batch, Precision::kF32, device));
  OwnBatch own(sizes.batch, sizes.width, 5);
  Table table;
  table.rows = kBatches * sizes.batch;
  table.features = sizes.width;
  F32Values values;
  Classes classes;
  for (int64_t i = 0; i < kBatches; ++i) {
    values.append(own.inputs.data(), own.inputs.size());
    classes.append(own.labels.data(), own.labels.size());
  }
  table.values = std::move(values);
  table.labels = std::move(classes);
  const Dataset data(std::move(table), Normalization(), {sizes.width, sizes.width, false});
  const BatchPlace place = trained.network->input().Room(sizes.batch, /*has_labels=*/true);
  BatchView out;
  out.features = place.inputs != nullptr ? place.inputs : own.inputs.data();
  out.classes = place.labels != nullptr ? place.labels : own.labels.data();
  std::mt19937 random(5);
  std::vector<uint32_t> rows(sizes.batch);
  std::printf("\n%-34s %12s %8s\n", "on the host, each step", "ms", "GB/s");
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (int threads = 1; threads <= std::clamp(cores, 1, kGatherThreadsMax); threads *= 2) {
    TESSERA_ASSIGN_OR_RETURN(const double each, SecondsPerCall(device, sizes.seconds, [&] {
                               for (uint32_t& row : rows) row = random() % data.rows();
                               data.FillBatch(rows, out, threads);
                             }));
    std::printf("%-34s %12.3f %8.1f\n", absl::StrCat("rows gathered, threads ", threads).c_str(),
                each * 1e3, 2.0 * own.inputs.size() * sizeof(float) / each * 1e-9);
  }
  return absl::OkStatus();
}

absl::Status TimeSmallSteps(const StepSizes& sizes, const std::string& how, Backend& device) {
  constexpr int64_t kWidth = 256, kRows = 64;
  const OwnBatch batch(kRows, kWidth, 5);
  RepeatedBatch batches(&batch);
  TESSERA_ASSIGN_OR_RETURN(const Trained trained,
                           Make(Perceptron(kWidth, 2), kRows, Precision::kF32, device));
  std::printf("\n%-34s %12s %8s\n", absl::StrCat("small steps, f32", how).c_str(), "us",
              "of first");
  double waited = 0;
  for (int begun_max = 1; begun_max <= kStepsBegunMax; ++begun_max) {
    TESSERA_ASSIGN_OR_RETURN(const double each,
                             SecondsPerStep(sizes.seconds, device, trained.network.get(),
                                            trained.optimizer.get(), &batches, begun_max));
    if (begun_max == 1) waited = each;
    std::printf("%-34s %12.1f %8.2f\n",
                begun_max == 1 ? "each waited for" : "the next begun before the wait", each * 1e6,
                each / waited);
  }
  return absl::OkStatus();
}

}  // namespace tessera
