// One training step of a perceptron with batch norm: forward, backward, SGD update.
//
//   bazel-bin/bench/step/step [--layers 4096,2048,2048,40] [--batch 128] [--threads 1] [--tiny]
//
// First checks loss and gradients against plain f64 loops, then times. Prints milliseconds
// (median), GFLOP/s of the matrix products alone, and their share of what dnnl_sgemm reaches on the
// same products; the candidates take turns, so that a slow moment of the machine hits all.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/step/products.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "kernels/devices.h"
#include "tests/worker/model/reference_network.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"

namespace tessera {
namespace {

struct Flags {
  std::vector<int64_t> layers = {4096, 2048, 2048, 40};
  int64_t batch = 128;
  int threads = 1;
  double seconds = 10;
  bool tiny = false;
};

// A network of linear layers with batch norm behind each but the last.
v1::Model Perceptron(const std::vector<int64_t>& widths) {
  v1::Model model;
  model.set_loss("softmax_cross_entropy");
  model.add_input(widths.front());
  for (size_t i = 1; i < widths.size(); ++i) {
    const bool last = i + 1 == widths.size();
    model.add_layers()->mutable_linear()->set_units(widths[i]);
    v1::BatchNorm* norm = model.add_layers()->mutable_batch_norm();
    norm->set_affine(!last);
    norm->set_epsilon(1e-5);
    if (!last) model.add_layers()->mutable_relu();
  }
  return model;
}

// A network with its optimizer, ready to step on one batch.
struct Candidate {
  std::string name;
  std::unique_ptr<Network> network;
  std::unique_ptr<LocalOptimizer> optimizer;
  std::vector<double> seconds;
};

// |gradient - reference| / |reference| in the Euclidean norm, of the worst parameter.
double GradientError(const Network& network, const ReferenceNetwork& reference) {
  double worst = 0;
  for (size_t p = 0; p < reference.gradients.size(); ++p) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < reference.gradients[p].size(); ++i) {
      const double want = reference.gradients[p][i];
      difference += std::pow(network.arrays().gradient(static_cast<int>(p))[i] - want, 2);
      norm += want * want;
    }
    worst = std::max(worst, std::sqrt(difference / norm));
  }
  return worst;
}

// Holds one step of the candidate to the f64 reference with the same roundings of factors.
absl::Status Check(const v1::Model& model, const Batch& batch, Candidate* candidate) {
  const bool bf16 = candidate->name == "bf16";
  ReferenceNetwork reference(model, bf16);
  for (size_t p = 0; p < reference.parameters.size(); ++p) {
    const absl::Span<const float> values =
        candidate->network->arrays().parameter(static_cast<int>(p));
    reference.parameters[p].assign(values.begin(), values.end());
  }
  const double want = reference.TrainLoss(batch, {}, true);
  TESSERA_ASSIGN_OR_RETURN(const LossAndCount got,
                           candidate->network->steps().TrainStep(batch, {}));
  const double loss_error = std::fabs(got.loss - want) / want;
  const double gradient_error = GradientError(*candidate->network, reference);
  std::printf("%-5s checked: loss off by %.1e, gradients by %.1e of their norm\n",
              candidate->name.c_str(), loss_error, gradient_error);
  // f32: roundings of 2^-24 in sums of thousands of terms. bf16: where an f32 sum is next to the
  // middle of two bf16 values, the two sides round apart by 2^-8.
  const double bound = bf16 ? 2e-2 : 1e-4;
  if (loss_error < bound && gradient_error < bound) return absl::OkStatus();
  return absl::InternalError(candidate->name + ": the step differs from the f64 reference");
}

// Times whole steps and, by turns, oneDNN's sgemm on the products that the step has.
absl::Status Run(const Flags& flags) {
  const v1::Model model = Perceptron(flags.layers);
  std::unique_ptr<Backend> backend;
  TESSERA_ASSIGN_OR_RETURN(backend, CreateBackend("cpu", flags.threads));

  std::mt19937 random(7);
  std::vector<float> inputs(flags.batch * flags.layers.front());
  for (float& x : inputs) x = std::normal_distribution<float>()(random);
  std::vector<int32_t> labels(flags.batch);
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % flags.layers.back());
  const Batch batch{flags.batch, inputs.data(), labels.data(), nullptr};

  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.01);
  std::vector<Candidate> candidates;
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    if (precision == Precision::kBf16 && !backend->linear_bf16().ok()) continue;
    Candidate candidate;
    candidate.name = precision == Precision::kF32 ? "f32" : "bf16";
    TESSERA_ASSIGN_OR_RETURN(candidate.network,
                             Network::Create(model, {flags.batch, precision}, *backend));
    TESSERA_ASSIGN_OR_RETURN(candidate.optimizer,
                             LocalOptimizer::Create(sgd, *candidate.network, *backend));
    candidate.network->arrays().SetInitialValues(1);
    candidates.push_back(std::move(candidate));
  }

  for (Candidate& candidate : candidates) TESSERA_RETURN_IF_ERROR(Check(model, batch, &candidate));

  std::vector<LinearShape> shapes;
  for (size_t i = 1; i < flags.layers.size(); ++i) {
    shapes.push_back({flags.batch, flags.layers[i - 1], flags.layers[i]});
  }
  StepProducts products(shapes);
  std::vector<double> product_seconds;
  double elapsed = 0;
  for (int round = 0; round < 5 || elapsed < flags.seconds; ++round) {
    const double limit = Seconds([&] { products.Run(flags.threads); });
    elapsed += limit;
    if (round >= 2) product_seconds.push_back(limit);
    for (Candidate& candidate : candidates) {
      absl::Status status;
      const double seconds = Seconds([&] {
        status = candidate.network->steps()
                     .TrainStep(batch, {0, static_cast<uint64_t>(round), 0})
                     .status();
        status.Update(candidate.optimizer->Step({}));
      });
      TESSERA_RETURN_IF_ERROR(status);
      elapsed += seconds;
      if (round >= 2) candidate.seconds.push_back(seconds);
    }
  }
  const double limit = Median(product_seconds);
  std::printf("%s, batch %ld, %zu rounds, medians\n", backend->description().c_str(), flags.batch,
              product_seconds.size());
  std::printf("sgemm %8.2f ms  %7.1f GFLOP/s  (the step's products alone)\n", limit * 1e3,
              products.flops() / limit * 1e-9);
  for (const Candidate& candidate : candidates) {
    const double seconds = Median(candidate.seconds);
    std::printf("%-5s %8.2f ms  %7.1f GFLOP/s  %.2f of sgemm  (forward, backward, update)\n",
                candidate.name.c_str(), seconds * 1e3, products.flops() / seconds * 1e-9,
                limit / seconds);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times one training step against oneDNN's matrix products.");
  app.add_option("--layers", flags.layers, "widths, inputs first")->delimiter(',');
  app.add_option("--batch", flags.batch, "rows");
  app.add_option("--threads", flags.threads, "OpenMP threads");
  app.add_option("--seconds", flags.seconds, "time to measure for");
  app.add_flag("--tiny", flags.tiny, "a small network for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.layers = {64, 48, 32, 5};
    flags.batch = 16;
    flags.seconds = 0.1;
  }
  const absl::Status status = tessera::Run(flags);
  if (!status.ok()) std::fprintf(stderr, "step: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
