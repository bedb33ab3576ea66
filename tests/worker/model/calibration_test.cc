// Calibration of networks with branches, with room for all that it would keep, some of it, and nothing.
#include "worker/model/calibration.h"

#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/model_fixture.h"
#include "tests/worker/model/model_text.h"
#include "worker/model/network_memory.h"

namespace tessera {
namespace {

constexpr int64_t kSample = 90;

const std::vector<std::string> kModels = {
    "{input: [3, 8, 6], layers: [{conv2d: {channels: 8, kernel: 3, padding: 1, bias: false}}, "
    "batch_norm, relu, {residual: {layers: [{conv2d: {channels: 8, kernel: 3, padding: 1}}, "
    "batch_norm, relu, {conv2d: {channels: 8, kernel: 3, padding: 1}}, batch_norm]}}, relu, "
    "{residual: {layers: [{conv2d: {channels: 12, kernel: 3, stride: 2, padding: 1}}, batch_norm, "
    "relu, {conv2d: {channels: 12, kernel: 3, padding: 1}}, batch_norm], shortcut: [{conv2d: "
    "{channels: 12, kernel: 1, stride: 2}}, batch_norm]}}, relu, avg_pool, {dropout: "
    "{probability: 0.3}}, {linear: {units: 5}}]}",
    "{input: [14], layers: [{residual: {layers: [{linear: {units: 9}}, batch_norm, relu, {linear: "
    "{units: 14}}]}}, batch_norm, relu, {dropout: {probability: 0.5}}, {concat: {branches: "
    "[[{linear: {units: 6}}, batch_norm, relu], [batch_norm, {linear: {units: 7}}, batch_norm]]}}, "
    "relu, batch_norm, {linear: {units: 3}}]}"};

struct Found {
  std::vector<float> constants;
  int64_t asked = 0;
  int64_t more_bytes = 0;
};

// Calibrates a network of a few rows at once with so much room besides its buffers.
Found Find(const v1::Model& model, int64_t batch_max, bool trains, int64_t store_bytes,
           int threads = 1) {
  const auto cpu = Cpu(threads);
  CountingBackend backend(*cpu);
  Network::Options options;
  options.batch_max = batch_max;
  options.evaluates_only = !trains;
  options.calibration_store_bytes = store_bytes;
  const auto network = *Network::Create(model, options, backend);
  SetRandom(*network, nullptr, 3);
  const Rows sample(model, kSample, 5, 1);
  BatchExamples examples(sample.batch(), network->shape().inputs());
  const int64_t held = backend.counting.held;
  const auto constants = network->evaluation().Calibrate(&examples);
  INFO(constants.status());
  REQUIRE(constants.ok());
  CHECK(backend.counting.held == held);
  return {*constants, examples.asked, backend.counting.most - held};
}

}  // namespace

TEST_CASE("constants are the same bits wherever activations are kept, or are computed anew",
          "[calibration]") {
  const v1::Model model = ModelOfText(GENERATE(from_range(kModels)));
  const Found all = Find(model, 8, false, kCalibrationStoreBytes);
  const NetworkPlan plan = *PlanOf(model);
  const auto sums_bytes = CalibrationSums(plan) * static_cast<int64_t>(sizeof(double));
  for (const bool trains : {false, true}) {
    for (const int64_t bytes : {0, 40000, 100000}) {
      CAPTURE(trains, bytes);
      const Found some = Find(model, 8, trains, bytes);
      CHECK(some.constants == all.constants);
      CHECK(some.more_bytes <= sums_bytes + bytes);
      CHECK(some.asked >= all.asked);
    }
  }
  // Without any room each pass begins with the rows.
  const size_t passes = CalibrationPlanOf(plan.stages).passes.size();
  const Found none = Find(model, 8, false, 0);
  CHECK(none.more_bytes == sums_bytes);
  CHECK(none.asked > all.asked);
  CHECK(none.asked <= static_cast<int64_t>(passes) * kSample);
  CHECK(Find(model, 8, false, kCalibrationStoreBytes, 2).constants == all.constants);
}

TEST_CASE("pieces of another size find the same constants, within a product's rounding",
          "[calibration]") {
  const v1::Model model = ModelOfText(GENERATE(from_range(kModels)));
  const Found whole = Find(model, kSample, false, 0);
  // One piece stays in the buffers from pass to pass: its rows are asked for once, and anew where they are read.
  for (const int64_t rows : {1, 7, 32, 89}) {
    CAPTURE(rows);
    const Found pieces = Find(model, rows, true, 1 << 20);
    REQUIRE(pieces.constants.size() == whole.constants.size());
    for (size_t i = 0; i < whole.constants.size(); ++i) {
      REQUIRE(pieces.constants[i] == Approx(whole.constants[i]).epsilon(2e-5).margin(1e-5));
    }
  }
}

TEST_CASE("with room for all a sample is read as often as its values are", "[calibration]") {
  CHECK(Find(ModelOfText(kModels[0]), 8, false, kCalibrationStoreBytes).asked == kSample);
  // The residual block is around the rows themselves, so that its sum reads them again.
  CHECK(Find(ModelOfText(kModels[1]), 8, false, kCalibrationStoreBytes).asked == 2 * kSample);
}

TEST_CASE("a piece calibrated alone has the statistics of training", "[calibration]") {
  const v1::Model model = ModelOfText(GENERATE(from_range(kModels)));
  const auto backend = Cpu();
  const auto network = NetworkOf(model, kSample, *backend);
  SetRandom(*network, nullptr, 3);
  v1::Model without = model;
  const Rows sample(model, kSample, 5, 1);
  const auto constants = Calibrated(*network, sample.batch());
  REQUIRE(constants.ok());
  const auto scores = network->evaluation().Score(sample.batch(), *constants);
  REQUIRE(scores.ok());
  // Dropout would draw otherwise: its probability counts in training alone.
  for (v1::Layer& layer : *without.mutable_layers()) {
    if (layer.has_dropout()) layer.mutable_dropout()->set_probability(0);
  }
  const auto trained = NetworkOf(without, kSample, *backend);
  SetRandom(*trained, nullptr, 3);
  const auto loss = trained->steps().TrainStep(sample.batch(), {});
  REQUIRE(loss.ok());
  CHECK(scores->loss_sum / kSample == Approx(loss->loss).epsilon(1e-5));
}

}  // namespace tessera
