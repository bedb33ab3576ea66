// One step of models with blocks against PyTorch's, from torch_values.py.
#include "tests/worker/model/torch_values.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/worker/model/model_fixture.h"
#include "tests/worker/model/model_text.h"
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
    const double scale = spec.is_vector ? 0.1 : 1 / std::sqrt(static_cast<double>(spec.columns));
    const double middle = spec.is_vector && absl::EndsWith(spec.name, "weight") ? 1 : 0;
    const absl::Span<float> values = network->arrays().parameter(static_cast<int>(p));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(middle + scale * Wave(1 + 1.3 * p, 0.7, i));
    }
  }
  network->arrays().SendParameters();
}

TEST_CASE("a step of a model with blocks is PyTorch's", "[torch]") {
  const int threads = GENERATE(1, 2);
  for (const TorchModel& wanted : kTorchModels) {
    CAPTURE(wanted.name, threads);
    const v1::Model model = ModelOfText(wanted.model);
    const std::unique_ptr<Backend> backend = Cpu(threads);
    const std::unique_ptr<Network> network = NetworkOf(model, kRows, *backend);
    SetParameters(network.get());
    std::vector<float> x(kRows * network->shape().inputs());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(Wave(0.5, 0.9, i));
    const int64_t outputs = network->shape().outputs();
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
      const TorchGradient& gradient = wanted.gradients[p];
      REQUIRE(network->shape().parameters[p].name == gradient.name);
      CAPTURE(gradient.name);
      const absl::Span<const float> got = network->arrays().gradient(static_cast<int>(p));
      double squares = 0;
      std::vector<double> products(gradient.numbers.size() - 1, 0.0);
      for (size_t i = 0; i < got.size(); ++i) {
        squares += double{got[i]} * got[i];
        for (size_t k = 0; k < products.size(); ++k) {
          products[k] += got[i] * Wave(static_cast<double>(k), 0.3 + 0.5 * k, i);
        }
      }
      // A bias in front of a batch norm has no gradient, and rounding makes some.
      const double norm = std::max(gradient.numbers[0], 1e-4);
      CHECK(std::fabs(std::sqrt(squares) - gradient.numbers[0]) <= 1e-3 * norm);
      for (size_t k = 0; k < products.size(); ++k) {
        CHECK(std::fabs(products[k] - gradient.numbers[k + 1]) <=
              1e-3 * norm * std::sqrt(static_cast<double>(got.size())));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
