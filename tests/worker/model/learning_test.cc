// Whole training runs on small problems, with the local optimizer.
#include "tests/worker/model/model_fixture.h"
#include "worker/model/local_optimizer.h"

namespace tessera {
namespace {

std::unique_ptr<LocalOptimizer> OptimizerOf(Network& network, Backend& backend, double rate,
                                            double momentum) {
  v1::Optimizer optimizer;
  optimizer.mutable_sgd()->set_learning_rate(rate);
  optimizer.mutable_sgd()->set_momentum(momentum);
  auto made = LocalOptimizer::Create(optimizer, network, backend);
  REQUIRE(made.ok());
  return std::move(*made);
}

// Three arms of a spiral, with a little noise: no line separates them.
Rows Spirals(const v1::Model& model, int64_t rows, unsigned seed) {
  Rows data(model, rows, seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> noise(0, 0.02f);
  std::uniform_real_distribution<float> uniform(0.1f, 1);
  for (int64_t r = 0; r < rows; ++r) {
    const int arm = static_cast<int>(random() % 3);
    const float radius = uniform(random);
    const float angle = 2.1f * static_cast<float>(arm) + 4 * radius;
    data.inputs[2 * r] = radius * std::cos(angle) + noise(random);
    data.inputs[2 * r + 1] = radius * std::sin(angle) + noise(random);
    data.labels[r] = arm;
    if (!data.targets.empty()) {
      for (int k = 0; k < 3; ++k) data.targets[3 * r + k] = k == arm ? 1.0f : 0.0f;
    }
  }
  return data;
}

}  // namespace

TEST_CASE("spirals are learned to 98% and more", "[learning]") {
  const std::string text = GENERATE(
      as<std::string>(), "2 linear-:64 norm relu linear-:64 norm relu linear-:3 norm- softmax",
      "2 linear:64 relu linear:64 norm relu drop:0.1 linear:3 softmax",
      "2 linear-:64 norm relu linear-:64 norm relu linear:3 sigmoid");
  const Precision precision = GENERATE(Precision::kF32, Precision::kBf16);
  CAPTURE(text, precision == Precision::kBf16);
  const v1::Model model = ModelOf(text);
  const auto backend = Cpu();
  if (precision == Precision::kBf16 && !backend->linear_bf16().ok()) return;
  const auto network = NetworkOf(model, 128, *backend, precision);
  network->arrays().SetInitialValues(1);
  const auto optimizer = OptimizerOf(*network, *backend, 0.05, 0.9);
  for (uint64_t step = 0; step < 600; ++step) {
    const Rows data = Spirals(model, 128, 1000 + static_cast<unsigned>(step));
    REQUIRE(network->steps().TrainStep(data.batch(), {1, step, 0}).ok());
    REQUIRE(optimizer->Step({}).ok());
  }
  const Rows calibration = Spirals(model, 2048, 1);
  const auto constants = Calibrated(*network, calibration.batch());
  REQUIRE(constants.ok());
  int64_t correct = 0;
  for (unsigned part = 0; part < 8; ++part) {
    const Rows test = Spirals(model, 128, 5000 + part);
    correct += network->evaluation().Score(test.batch(), *constants)->correct;
  }
  CHECK(correct >= 0.98 * 8 * 128);
}

}  // namespace tessera
