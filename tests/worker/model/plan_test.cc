#include "worker/model/plan.h"

#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/model/image_stages.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network_memory.h"

namespace tessera {
namespace {

NetworkPlan Planned(const std::string& text) {
  const auto plan = PlanOf(ModelOf(text));
  REQUIRE(plan.ok());
  return *plan;
}

// Whether stage i passes a gradient on to what it reads.
bool PassesGradient(const NetworkPlan& plan, size_t i) {
  return BuffersOf(plan, /*trains=*/true).training.input_gradients[i][0].buffer != kNoBuffer;
}

}  // namespace

TEST_CASE("a relu joins the batch norm before it, and only that one", "[plan]") {
  const NetworkPlan plan = Planned("4 relu norm relu relu linear:3 relu softmax");
  REQUIRE(plan.stages.size() == 5);
  using Layer = v1::Layer;
  const std::vector<Layer::KindCase> want = {Layer::kRelu, Layer::kBatchNorm, Layer::kRelu,
                                             Layer::kLinear, Layer::kRelu};
  for (size_t i = 0; i < want.size(); ++i) CHECK(plan.stages[i].kind->layer == want[i]);
  CHECK(plan.stages[1].is_joined);
  CHECK(plan.stages[3].layer == 4);
}

TEST_CASE("only stages behind a parameter pass a gradient on", "[plan]") {
  const NetworkPlan plan = Planned("4 norm- drop:0.5 linear:3 relu linear:2 softmax");
  const std::vector<bool> want = {false, false, false, true, true};
  REQUIRE(plan.stages.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) CHECK(PassesGradient(plan, i) == want[i]);
  CHECK(PassesGradient(Planned("4 norm linear:3 softmax"), 1));
}

TEST_CASE("images are turned round where they come and go, unless that is nothing",
          "[plan][images]") {
  const auto transposes = [](const std::string& text) {
    std::vector<int64_t> all;
    for (const StagePlan& stage : Planned(text).stages) {
      if (stage.layer >= 0) continue;
      CHECK(stage.kind->layer == v1::Layer::KIND_NOT_SET);
      CHECK(stage.inputs == stage.outputs);
      const bool comes = stage.kind == &ToChannelsLastKind();
      CHECK((comes || stage.kind == &FromChannelsLastKind()));
      const Image& image = stage.map.from;
      all.push_back(comes ? image.channels : image.positions());
      all.push_back(comes ? image.positions() : image.channels);
    }
    return all;
  };
  using Extents = std::vector<int64_t>;
  CHECK(transposes("3 8 7 conv:16:3 linear:4 softmax") == Extents{3, 56, 30, 16});
  CHECK(transposes("1 8 7 conv:16:3 linear:4 softmax") == Extents{30, 16});
  CHECK(transposes("3 8 7 conv:16:3 avg linear:4 softmax") == Extents{3, 56});
  CHECK(transposes("1 8 7 conv:1:3 linear:4 softmax").empty());
  CHECK(transposes("2 8 7 conv:4:3 softmax") == Extents{2, 56, 30, 4});
  // Without convolutions and pooling there are no images.
  CHECK(transposes("3 8 7 norm relu linear:4 softmax").empty());
  CHECK(Planned("3 8 7 norm relu linear:4 softmax").stages[0].constants() == 2 * 3 * 8 * 7);
  CHECK(Planned("3 8 7 norm relu conv:2:3 linear:4 softmax").stages[1].constants() == 2 * 3);
}

TEST_CASE("parameters begin on cache lines, in the layout's order", "[plan]") {
  const NetworkPlan plan = Planned("5 linear:3 norm linear:17 softmax");
  CHECK(plan.parameter_offsets == std::vector<int64_t>{0, 16, 32, 48, 64, 128});
  CHECK(plan.parameter_floats == 160);
  CHECK(plan.constants == 6);
}

TEST_CASE("a network allocates what MemoryNeeded says, at once, and training nothing more",
          "[plan][memory]") {
  const std::string text = GENERATE(
      as<std::string>(), "9 linear:30 norm relu linear-:7 norm- softmax",
      "9 linear:30 relu linear:7 softmax",
      "50 norm relu drop:0.5 linear:30 drop:0.2 linear:7 norm softmax",
      "50 drop:0.1 relu linear:7 sigmoid", "20 lnorm linear:30 gelu gnorm:3 linear:7 softmax",
      "4 9 6 conv:8:3:1:1:1:2 lnorm relu lrn:5:1:0.75:1 gnorm:4 tanh linear:7 softmax",
      "3 9 6 conv:16:3:1:1 norm relu max:2 drop:0.2 conv-:20:3 norm linear:7 softmax",
      "2 9 6 norm conv:4:3 avg sigmoid");
  const Precision precision = GENERATE(Precision::kF32, Precision::kBf16);
  CAPTURE(text, precision == Precision::kBf16);
  const v1::Model model = ModelOf(text);
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  if (precision == Precision::kBf16 && !backend.linear_bf16().ok()) return;
  const int64_t sample_rows = 100;
  const NetworkMemory want = MemoryNeeded(Planned(text), 12, precision, sample_rows);
  {
    const auto network = NetworkOf(model, 12, backend, precision);
    CHECK(backend.counting.held == want.held_bytes);
    const int64_t calls = backend.counting.calls;
    const Rows data(model, 12, 1), sample(model, sample_rows, 2);
    for (uint64_t step = 0; step < 3; ++step) {
      REQUIRE(network->steps().TrainStep(data.batch(), {0, step, 0}).ok());
    }
    CHECK(backend.counting.calls == calls);
    const auto constants = Calibrated(*network, sample.batch());
    REQUIRE(constants.ok());
    CHECK(backend.counting.most == want.held_bytes + want.calibration_bytes);
    CHECK(backend.counting.held == want.held_bytes);
    REQUIRE(network->evaluation().Score(data.batch(), *constants).ok());
    CHECK(backend.counting.held == want.held_bytes);

    const int states = GENERATE(0, 1, 2);
    v1::Optimizer optimizer;
    optimizer.mutable_sgd()->set_momentum(states == 1 ? 0.9 : 0);
    if (states == 2) optimizer.mutable_adam();
    CHECK(LocalOptimizer::MemoryNeeded(optimizer, network->plan()) ==
          states * network->arrays().parameters().size() * sizeof(float));
    const auto local = LocalOptimizer::Create(optimizer, *network, backend);
    REQUIRE(local.ok());
    CHECK(backend.counting.held ==
          want.held_bytes + LocalOptimizer::MemoryNeeded(optimizer, network->plan()));
  }
  CHECK(backend.counting.held == 0);
}

TEST_CASE("where memory runs out, there is a status and nothing stays behind", "[plan][memory]") {
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  const v1::Model model = ModelOf("9 linear:30 norm relu linear-:7 norm- softmax");
  const NetworkMemory need = MemoryNeeded(Planned("9 linear:30 norm relu linear-:7 norm- softmax"),
                                          12, Precision::kF32, 100);
  for (backend.counting.limit = 0; backend.counting.limit < need.held_bytes;
       backend.counting.limit += 64) {
    const auto network = Network::Create(model, {12, Precision::kF32}, backend);
    REQUIRE(network.status().code() == absl::StatusCode::kResourceExhausted);
    REQUIRE(backend.counting.held == 0);
  }
  backend.counting.limit = need.held_bytes + need.calibration_bytes - 1;
  const auto network = NetworkOf(model, 12, backend);
  const Rows sample(model, 100, 2);
  CHECK(Calibrated(*network, sample.batch()).status().code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK(backend.counting.held == need.held_bytes);
}

TEST_CASE("precision is f32, tf32 or bf16", "[plan]") {
  CHECK(*PrecisionOf("f32") == Precision::kF32);
  CHECK(*PrecisionOf("tf32") == Precision::kTf32);
  CHECK(*PrecisionOf("bf16") == Precision::kBf16);
  CHECK(PrecisionOf("f16").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(PrecisionOf("").status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace tessera
