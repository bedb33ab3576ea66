// The two halves of a model against the whole of it, on the CPU.
#include <algorithm>

#include "common/layout/layer_cut.h"
#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/halves.h"
#include "worker/model/image_stages.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network_memory.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 12;

const std::vector<std::string>& Models() {
  static const std::vector<std::string> models = {
      // deploy/jobs/digits_conv.yaml
      "1 8 8 conv-:16:3:1:1 norm relu max:2 conv-:32:3:1:1 norm relu max:2 linear:10 softmax",
      "3 9 7 conv:5:3x2:2x1:1 norm relu max:2 drop:0.3 linear:30 norm relu drop:0.4 linear:6 "
      "softmax",
      "2 8 8 conv:8:3:1:1 norm relu drop:0.2 conv-:20:3 norm- relu avg linear-:9 norm- softmax",
      "2 7 6 relu conv:3:3 relu linear:17 relu linear:1 sigmoid",
      "2 7 6 norm relu drop:0.2 conv:1:3 drop:0.5 linear:20 drop:0.1 norm relu linear:7 sigmoid",
      "1 6 6 conv:4:3 max:2 relu linear:5 softmax",
      // Cut before the second linear layer.
      "30 drop:0.2 norm relu linear:20 norm relu drop:0.5 linear:11 relu linear:6 softmax",
  };
  return models;
}

Network::Options OptionsOf(Precision precision = Precision::kF32) {
  Network::Options options;
  options.batch_max = kBatch;
  options.precision = precision;
  return options;
}

// Bit for bit.
void CheckGradients(const Network& whole, const Network& front, const Network& back) {
  for (int i = 0; i < static_cast<int>(whole.shape().parameters.size()); ++i) {
    CAPTURE(whole.shape().parameters[i].name);
    CHECK(GradientOf(front, back, i) == whole.arrays().gradient(i));
  }
}

void Descend(Network& network, Backend& backend) {
  backend.vector().Axpy(network.arrays().parameters().size(), -0.1f,
                        network.arrays().gradients().data(), network.arrays().parameters().data());
}

// Whether stage i passes a gradient on to what it reads.
bool PassesGradient(const NetworkPlan& plan, size_t i) {
  return BuffersOf(plan, /*trains=*/true).training.input_gradients[i][0].buffer != kNoBuffer;
}

}  // namespace

TEST_CASE("the halves' gradients, loss and count are the whole's bit for bit, step after step",
          "[half]") {
  const std::string text = GENERATE(from_range(Models()));
  const int threads = GENERATE(1, 2);
  const Precision precision = GENERATE(Precision::kF32, Precision::kBf16);
  CAPTURE(text, threads, precision == Precision::kBf16);
  const v1::Model model = ModelOf(text);
  const auto cpu = Cpu(threads);
  if (precision == Precision::kBf16 && !cpu->linear_bf16().ok()) return;
  const auto whole = NetworkOf(model, kBatch, *cpu, precision);
  const auto front = FrontOf(model, OptionsOf(precision), *cpu);
  const auto back = BackOf(model, OptionsOf(precision), *cpu);
  SetRandom(*whole, nullptr, 3);
  CopyParameters(*whole, front.get());
  CopyParameters(*whole, back.get());
  for (const int64_t rows : {12, 5, 12, 7}) {
    CAPTURE(rows);
    const Rows data(model, rows, 5 + static_cast<unsigned>(rows));
    const StepKey key{9, static_cast<uint64_t>(rows), 2};
    const auto want = whole->steps().TrainStep(data.batch(), key);
    REQUIRE(want.ok());
    const LossAndCount got = TrainHalves(*front, *back, data.batch(), key);
    CHECK(got.loss == want->loss);
    CHECK(got.correct == want->correct);
    CHECK(got.rows == rows);
    CheckGradients(*whole, *front, *back);
    for (Network* const network : {whole.get(), front.get(), back.get()}) Descend(*network, *cpu);
  }
}

TEST_CASE("the halves begin with the whole's values", "[half]") {
  const v1::Model model = ModelOf(Models()[1]);
  const auto cpu = Cpu();
  const auto whole = NetworkOf(model, kBatch, *cpu);
  const auto front = FrontOf(model, OptionsOf(), *cpu), back = BackOf(model, OptionsOf(), *cpu);
  whole->arrays().SetInitialValues(42);
  front->arrays().SetInitialValues(42);
  back->arrays().SetInitialValues(42);
  const int count = static_cast<int>(whole->shape().parameters.size());
  const int behind = back->plan().parameter_begin;
  for (int i = 0; i < count; ++i) {
    const absl::Span<const float> got =
        i < behind ? front->arrays().parameter(i) : back->arrays().parameter(i - behind);
    CHECK(got == absl::MakeConstSpan(whole->arrays().parameter(i)));
  }
}

TEST_CASE("a forward pass that is dropped leaves nothing behind", "[half]") {
  const v1::Model model = ModelOf(Models()[1]);
  const auto cpu = Cpu();
  const auto whole = NetworkOf(model, kBatch, *cpu);
  const auto front = FrontOf(model, OptionsOf(), *cpu), back = BackOf(model, OptionsOf(), *cpu);
  SetRandom(*whole, nullptr, 3);
  CopyParameters(*whole, front.get());
  CopyParameters(*whole, back.get());
  for (uint64_t step = 0; step < 4; ++step) {
    const Rows dropped(model, 9, 70 + static_cast<unsigned>(step)),
        data(model, kBatch - static_cast<int64_t>(step), 5 + static_cast<unsigned>(step));
    REQUIRE(front->front().BeginForward(dropped.batch(), {9, step, 1}).ok());
    if (step % 2 == 1) REQUIRE(front->front().Activations().ok());
    const auto want = whole->steps().TrainStep(data.batch(), {9, step, 2});
    REQUIRE(want.ok());
    CHECK(TrainHalves(*front, *back, data.batch(), {9, step, 2}).loss == want->loss);
    CheckGradients(*whole, *front, *back);
  }
}

TEST_CASE(
    "batches that add have each its loss and input gradient, and leave the whole's gradients' sum",
    "[half]") {
  const std::string text = GENERATE(from_range(Models()));
  const Precision precision = GENERATE(Precision::kF32, Precision::kBf16);
  // In many rows a product that adds rounds otherwise than one that does not.
  const int64_t batch_max = GENERATE(as<int64_t>(), 12, 300);
  CAPTURE(text, precision == Precision::kBf16, batch_max);
  const v1::Model model = ModelOf(text);
  const auto cpu = Cpu();
  if (precision == Precision::kBf16 && !cpu->linear_bf16().ok()) return;
  Network::Options options = OptionsOf(precision);
  options.batch_max = batch_max;
  const auto whole = NetworkOf(model, batch_max, *cpu, precision);
  const auto front = FrontOf(model, options, *cpu), back = BackOf(model, options, *cpu);
  SetRandom(*whole, nullptr, 3);
  CopyParameters(*whole, front.get());
  CopyParameters(*whole, back.get());
  const int begin = back->plan().parameter_begin;
  for (uint64_t step = 0; step < 2; ++step) {
    std::vector<std::vector<float>> sums(back->shape().parameters.size());
    for (uint64_t sender = 0; sender < 3; ++sender) {
      const Rows data(model, batch_max - static_cast<int64_t>(3 * sender),
                      20 + static_cast<unsigned>(3 * step + sender));
      const StepKey key{9, step, sender};
      const auto want = whole->steps().TrainStep(data.batch(), key);
      REQUIRE(want.ok());
      const LossAndCount got =
          TrainHalves(*front, *back, data.batch(), key, sender > 0, sender < 2);
      CHECK(got.loss == want->loss);
      CHECK(got.correct == want->correct);
      // The front got the whole's gradient at the cut.
      for (int i = 0; i < begin; ++i) {
        CHECK(front->arrays().gradient(i) == whole->arrays().gradient(i));
      }
      for (size_t i = 0; i < sums.size(); ++i) {
        const absl::Span<const float> one = whole->arrays().gradient(begin + static_cast<int>(i));
        if (sender == 0) sums[i].assign(one.size(), 0.0f);
        for (size_t k = 0; k < one.size(); ++k) sums[i][k] += one[k];
        CAPTURE(step, sender, back->shape().parameters[i].name);
        CHECK(back->arrays().gradient(static_cast<int>(i)) == absl::MakeConstSpan(sums[i]));
      }
    }
  }
  // What pads the gradients stays zero.
  double inside = 0, all = 0;
  for (size_t i = 0; i < back->shape().parameters.size(); ++i) {
    for (const float g : back->arrays().gradient(static_cast<int>(i))) inside += g != 0 ? 1 : 0;
  }
  for (const float g : back->arrays().gradients()) all += g != 0 ? 1 : 0;
  CHECK(inside == all);
}

TEST_CASE("in bf16 a back rounds the weights that an update has moved", "[half][bf16]") {
  const v1::Model model = ModelOf(Models()[0]);
  const auto cpu = Cpu();
  if (!cpu->linear_bf16().ok()) return;
  const auto front = FrontOf(model, OptionsOf(Precision::kBf16), *cpu);
  const auto back = BackOf(model, OptionsOf(Precision::kBf16), *cpu);
  front->arrays().SetInitialValues(1);
  back->arrays().SetInitialValues(1);
  const Rows data(model, kBatch, 5);
  std::vector<double> losses;
  for (uint64_t step = 0; step < 3; ++step) {
    losses.push_back(TrainHalves(*front, *back, data.batch(), {9, step, 0}, false, true).loss);
    CHECK(TrainHalves(*front, *back, data.batch(), {9, step, 1}, true).loss == losses.back());
    Descend(*back, *cpu);
  }
  CHECK(losses[1] != losses[0]);
  CHECK(losses[2] != losses[1]);
}

TEST_CASE("a half allocates what MemoryNeeded says, at once, and training nothing more",
          "[half][memory]") {
  const std::string text = GENERATE(from_range(Models()));
  const Precision precision = GENERATE(Precision::kF32, Precision::kBf16);
  CAPTURE(text, precision == Precision::kBf16);
  const v1::Model model = ModelOf(text);
  const auto cpu = Cpu();
  CountingBackend front_backend(*cpu), back_backend(*cpu);
  if (precision == Precision::kBf16 && !cpu->linear_bf16().ok()) return;
  const NetworkPlan plan = *PlanOf(model);
  const int cut = CutOf(model);
  const auto held = [&](const LayerRange& layers) {
    const NetworkMemory memory = MemoryNeeded(*HalfOf(plan, layers), kBatch, precision, 100);
    CHECK(memory.calibration_bytes == 0);
    return memory.held_bytes;
  };
  const int64_t front_bytes = held({0, cut}), back_bytes = held({cut, model.layers_size()});
  {
    const auto front = FrontOf(model, OptionsOf(precision), front_backend);
    const auto back = BackOf(model, OptionsOf(precision), back_backend);
    CHECK(front_backend.counting.held == front_bytes);
    CHECK(back_backend.counting.held == back_bytes);
    const int64_t calls = front_backend.counting.calls + back_backend.counting.calls;
    const Rows data(model, kBatch, 1);
    for (uint64_t step = 0; step < 3; ++step) {
      TrainHalves(*front, *back, data.batch(), {0, step, 0}, step > 0, step < 2);
    }
    CHECK(front_backend.counting.calls + back_backend.counting.calls == calls);
    v1::Optimizer adam;
    adam.mutable_adam();
    const auto local = LocalOptimizer::Create(adam, *back, back_backend);
    REQUIRE(local.ok());
    CHECK(back_backend.counting.held ==
          back_bytes + LocalOptimizer::MemoryNeeded(adam, back->plan()));
  }
  CHECK(front_backend.counting.held + back_backend.counting.held == 0);
}

TEST_CASE("the gradient that others wait for is there before those of the first layer", "[half]") {
  const v1::Model model = ModelOf(Models()[1]);
  const auto cpu = Cpu();
  const auto back = BackOf(model, OptionsOf(), *cpu);
  back->arrays().SetInitialValues(1);
  const Rows data(model, kBatch, 2);
  std::vector<float> activations(kBatch * back->shape().inputs());
  for (size_t i = 0; i < activations.size(); ++i) {
    activations[i] = 0.1f * static_cast<float>(i * i % 17);
  }
  const auto is_zero = [&](int i) {
    const absl::Span<const float> values = back->arrays().gradient(i);
    return std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
  };
  const int last = static_cast<int>(back->shape().parameters.size()) - 1;
  REQUIRE(back->steps().TrainStep(Received(data.batch(), activations), {}).ok());
  const auto gradient = back->back().InputGradient();
  REQUIRE(gradient.ok());
  CHECK(std::any_of(gradient->begin(), gradient->end(), [](float v) { return v != 0; }));
  CHECK(is_zero(0));
  CHECK_FALSE(is_zero(last));
  back->back().Finish();
  CHECK_FALSE(is_zero(0));
  // Once is enough.
  const std::vector<float> before(back->arrays().gradient(0).begin(),
                                  back->arrays().gradient(0).end());
  back->back().Finish();
  CHECK(back->arrays().gradient(0) == absl::MakeConstSpan(before));
}

TEST_CASE("calls that a part of a model has no use for are refused", "[half]") {
  const v1::Model model = ModelOf(Models()[1]);
  const auto cpu = Cpu();
  const auto whole = NetworkOf(model, kBatch, *cpu);
  const auto front = FrontOf(model, OptionsOf(), *cpu), back = BackOf(model, OptionsOf(), *cpu);
  for (Network* const network : {whole.get(), front.get(), back.get()}) {
    network->arrays().SetInitialValues(1);
  }
  const Rows data(model, kBatch, 2);
  const int64_t crossing = back->shape().inputs();
  const std::vector<float> gradient(kBatch * crossing, 0.5f);
  Batch at_cut = Received(data.batch(), gradient);
  const auto is = [](const absl::Status& status, absl::StatusCode code) {
    INFO(status);
    return status.code() == code;
  };
  const auto late = absl::StatusCode::kFailedPrecondition;
  const auto wrong = absl::StatusCode::kInvalidArgument;

  CHECK(is(front->steps().TrainStep(data.batch(), {}).status(), late));
  CHECK(is(front->evaluation().Score(data.batch(), {}).status(), late));
  CHECK(is(back->evaluation().Score(at_cut, {}).status(), late));
  CHECK(is(front->evaluation().Calibrate(nullptr).status(), late));
  for (Network* const network : {whole.get(), back.get()}) {
    CHECK(is(network->front().BeginForward(data.batch(), {}), late));
    CHECK(is(network->front().Activations().status(), late));
    CHECK(is(network->front().FinishStep(gradient), late));
    CHECK(is(network->back().InputGradient().status(), late));
  }
  REQUIRE(whole->steps().TrainStep(data.batch(), {}).ok());
  CHECK(is(whole->back().InputGradient().status(), late));
  CHECK(is(front->back().InputGradient().status(), late));
  // Nothing is begun, and nothing after the step is finished.
  for (int step = 0; step < 2; ++step) {
    CHECK(is(front->front().Activations().status(), late));
    CHECK(is(front->front().FinishStep(gradient), late));
    CHECK(is(front->front().BeginForwardOnNext({}), late));
    REQUIRE(front->front().BeginForward(data.batch(), {}).ok());
    // A wrong gradient and a wrong batch change nothing.
    CHECK(is(front->front().FinishStep(absl::MakeConstSpan(gradient).subspan(1)), wrong));
    Batch bad = data.batch();
    bad.rows = kBatch + 1;
    CHECK(is(front->front().BeginForward(bad, {}), wrong));
    bad = data.batch();
    bad.inputs = nullptr;
    CHECK(is(front->front().BeginForward(bad, {}), wrong));
    REQUIRE(front->front().Activations().ok());
    REQUIRE(front->front().FinishStep(gradient).ok());
  }
  CHECK(is(front->front().BeginForward(data.piece(0, 4), {}), wrong));
  Batch piece = data.piece(4, 4);
  piece.inputs = gradient.data();
  CHECK(is(back->steps().BeginStep(piece, {}), wrong));

  Batch adds = data.batch();
  adds.adds = true;
  CHECK(is(whole->steps().BeginStep(adds, {}), wrong));
  CHECK(is(front->front().BeginForward(adds, {}), wrong));
  Batch more = data.batch();
  more.more = true;
  CHECK(is(whole->steps().BeginStep(more, {}), wrong));
  // The first batch of all has nothing to add to.
  at_cut.adds = true;
  CHECK(is(back->steps().BeginStep(at_cut, {}), wrong));
  at_cut.adds = false;
  REQUIRE(back->steps().TrainStep(at_cut, {}).ok());
  REQUIRE(back->back().InputGradient().ok());
  back->back().Finish();
  at_cut.adds = true;
  CHECK(back->steps().TrainStep(at_cut, {}).ok());
}

TEST_CASE("halves that cannot be are refused", "[half]") {
  const auto cpu = Cpu();
  const v1::Model model =
      ModelOf("1 8 8 conv:4:3 norm relu max:2 linear:5 norm relu linear:3 softmax");
  const auto code = [&](const LayerRange& layers, Network::Options options = OptionsOf()) {
    options.layers = layers;
    return Network::Create(model, options, *cpu).status().code();
  };
  const auto wrong = absl::StatusCode::kInvalidArgument;
  for (const LayerRange& good :
       {LayerRange{0, 4}, LayerRange{4, 8}, LayerRange{0, 7}, LayerRange{7, 8}, LayerRange{0, 8}}) {
    CHECK(code(good) == absl::StatusCode::kOk);
  }
  for (const LayerRange& bad :
       {LayerRange{0, 0}, LayerRange{0, 3}, LayerRange{0, 5}, LayerRange{0, 9}, LayerRange{1, 8},
        LayerRange{2, 8}, LayerRange{5, 8}, LayerRange{8, 8}, LayerRange{4, 7}, LayerRange{-1, 8},
        LayerRange{4, 9}, LayerRange{7, 0}, LayerRange{0, -1}}) {
    CAPTURE(bad.begin, bad.end);
    CHECK(code(bad) == wrong);
  }
  Network::Options evaluates = OptionsOf();
  evaluates.evaluates_only = true;
  CHECK(code({0, 4}, evaluates) == wrong);
  const v1::Model dense = ModelOf("9 linear:5 relu linear:3 softmax");
  Network::Options sparse = OptionsOf();
  sparse.sparse_input = true;
  sparse.layers = LayerRange{0, 2};
  CHECK(Network::Create(dense, sparse, *cpu).status().code() == wrong);
  // No parameters in front.
  const v1::Model bare = ModelOf("9 relu linear:5 softmax");
  CHECK(HalfOf(*PlanOf(bare), {0, 1}).status().code() == wrong);
  CHECK(HalfOf(*PlanOf(bare), {1, 2}).ok());
  CHECK(HalfOf(*HalfOf(*PlanOf(model), {0, 7}), {0, 4}).status().code() == wrong);
}

TEST_CASE("a half's plan is its part of the whole's", "[half][plan]") {
  const v1::Model model = ModelOf(
      "3 8 8 conv:4:3 norm relu max:2 drop:0.3 linear:5 drop:0.5 norm relu linear:3 softmax");
  const NetworkPlan whole = *PlanOf(model);
  const LayerCut cut = *CutBeforeLinear(model);
  const NetworkPlan front = *HalfOf(whole, {0, cut.layer}),
                    back = *HalfOf(whole, {cut.layer, cut.layers});
  CHECK(CutOf(model) == cut.layer);
  REQUIRE(front.stages.size() + back.stages.size() == whole.stages.size());
  // Images are turned round in front of the cut.
  CHECK(front.stages.front().kind == &ToChannelsLastKind());
  CHECK(front.stages.back().kind == &FromChannelsLastKind());
  for (size_t i = 0; i < whole.stages.size(); ++i) {
    const bool behind = i >= front.stages.size();
    const StagePlan& got = behind ? back.stages[i - front.stages.size()] : front.stages[i];
    const StagePlan& want = whole.stages[i];
    const int moved = behind ? cut.parameter : 0;
    CHECK(got.kind == want.kind);
    CHECK(got.layer == want.layer);
    CHECK(got.weight == (want.weight < 0 ? -1 : want.weight - moved));
    CHECK(got.bias == (want.bias < 0 ? -1 : want.bias - moved));
    CHECK(PassesGradient(behind ? back : front, behind ? i - front.stages.size() : i) ==
          PassesGradient(whole, i));
  }
  CHECK(static_cast<int>(front.shape.parameters.size()) == cut.parameter);
  CHECK(static_cast<int>(back.shape.parameters.size()) == cut.parameters - cut.parameter);
  CHECK(back.parameter_begin == cut.parameter);
  CHECK(back.shape.parameters[0].name == "layers.5.weight");
  CHECK(back.shape.parameters[0].layer == 5);
  CHECK(front.shape.size + back.shape.size == whole.shape.size);
  CHECK(front.shape.outputs() == back.shape.inputs());
  CHECK(front.shape.inputs() == whole.shape.inputs());
  CHECK(back.shape.outputs() == whole.shape.outputs());
  CHECK(front.shape.images.back().channels == 4);
  CHECK(back.parameter_offsets[0] == 0);
  CHECK(front.constants + back.constants == whole.constants);
}

}  // namespace tessera
