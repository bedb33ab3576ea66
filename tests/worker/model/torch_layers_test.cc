// One step of models with norms within rows, other activations, and convolutions with groups and gaps, against
// PyTorch's, from torch_layers.py.
#include "tests/worker/model/torch_layers.h"

#include <cmath>
#include <string>
#include <vector>

#include "tests/worker/model/model_fixture.h"
#include "worker/model/training_pass.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 6;

double Wave(double phase, double step, int64_t i) {
  return std::sin(phase + step * static_cast<double>(i));
}

void SetParameters(Network* network) {
  for (size_t p = 0; p < network->shape().parameters.size(); ++p) {
    const ParameterSpec& spec = network->shape().parameters[p];
    const auto columns = static_cast<double>(spec.columns);
    const absl::Span<float> values = network->arrays().parameter(static_cast<int>(p));
    for (size_t i = 0; i < values.size(); ++i) {
      const double wave = Wave(1 + 1.3 * static_cast<double>(p), 0.7, static_cast<int64_t>(i));
      values[i] = static_cast<float>((spec.columns > 1 ? 0 : 1) + wave / std::sqrt(columns + 3));
    }
  }
  network->arrays().SendParameters();
}

}  // namespace

TEST_CASE("a step of norms within rows, activations and grouped convolutions is PyTorch's",
          "[torch]") {
  const int threads = GENERATE(1, 2);
  for (const TorchLayers& wanted : kTorchLayers) {
    CAPTURE(wanted.name, threads);
    const v1::Model model = ModelOf(wanted.model);
    const std::unique_ptr<Backend> backend = Cpu(threads);
    const std::unique_ptr<Network> network = NetworkOf(model, kRows, *backend);
    SetParameters(network.get());
    const int64_t inputs = network->shape().inputs(), outputs = network->shape().outputs();
    std::vector<float> x(kRows * inputs);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(Wave(0.5, 0.9, i));
    std::vector<int32_t> labels(kRows);
    for (int64_t row = 0; row < kRows; ++row) labels[row] = static_cast<int32_t>(row % outputs);
    Batch batch;
    batch.rows = batch.minibatch_rows = kRows;
    batch.inputs = x.data();
    batch.labels = labels.data();

    const absl::StatusOr<Batch> staged = network->input().Take(batch);
    REQUIRE(staged.ok());
    TrainingPass& pass = network->pass();
    const StepForm form = pass.Begin(*staged, {}, 0);
    pass.Forward(form);
    double size = 0;
    for (const double output : wanted.outputs) size = std::max(size, std::fabs(output));
    for (size_t i = 0; i < wanted.outputs.size(); ++i) {
      CAPTURE(i);
      REQUIRE(std::fabs(pass.output()[i] - wanted.outputs[i]) <= 1e-4 * size);
    }
    pass.Backward(form, nullptr);
    REQUIRE(backend->Finish().ok());

    const absl::StatusOr<LossAndCount> step = network->steps().TrainStep(batch, {});
    REQUIRE(step.ok());
    CHECK(step->loss == Approx(wanted.loss).epsilon(1e-4));
    REQUIRE(network->shape().parameters.size() == wanted.gradients.size());
    for (size_t p = 0; p < wanted.gradients.size(); ++p) {
      CAPTURE(network->shape().parameters[p].name);
      const absl::Span<const float> got = network->arrays().gradient(static_cast<int>(p));
      const double norm = wanted.gradients[p][0];
      double squares = 0;
      for (const float value : got) squares += double{value} * value;
      CHECK(std::fabs(std::sqrt(squares) - norm) <= 1e-3 * norm);
      for (size_t k = 0; k + 1 < wanted.gradients[p].size(); ++k) {
        double product = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          const auto at = static_cast<double>(k);
          product += got[i] * Wave(at, 0.3 + 0.5 * at, static_cast<int64_t>(i));
        }
        CHECK(std::fabs(product - wanted.gradients[p][k + 1]) <= 1e-3 * norm);
      }
    }
  }
}

}  // namespace tessera
