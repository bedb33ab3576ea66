// Networks whose stages read several outputs, or share one: no layer of the job language makes such a plan yet.
#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/model/back_half.h"
#include "worker/model/network_evaluation.h"
#include "worker/model/network_arrays.h"
#include "worker/model/network_input.h"
#include "worker/model/network_memory.h"
#include "worker/model/network_stages.h"
#include "worker/model/training_pass.h"
#include "worker/model/training_steps.h"

namespace tessera {
namespace {

// y = x0 + x1 + ...
class SumStage final : public Stage {
 public:
  SumStage(const StagePlan& plan, const StageOptions&, Backend& backend)
      : width_(plan.outputs), backend_(backend) {}

  void Forward(int64_t rows, const StageInputs& x, float* y) override {
    backend_.memory().Copy(x[0], Bytes(rows), y);
    for (size_t k = 1; k < x.size(); ++k) {
      backend_.vector().Axpy(rows * width_, 1.0f, x[k], y);
    }
  }
  void Backward(int64_t rows, const StageInputs&, const float*, const float* dy,
                const StageGradients&, const InputGradients& dx) override {
    for (float* const each : dx) {
      if (each != nullptr) backend_.memory().Copy(dy, Bytes(rows), each);
    }
  }
  void Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) override {
    Forward(rows, x, y);
  }

 private:
  int64_t Bytes(int64_t rows) const { return rows * width_ * static_cast<int64_t>(sizeof(float)); }

  const int64_t width_;
  Backend& backend_;
};

const StageKind& SumKind() {
  static const StageKind kKind = [] {
    StageKind kind{v1::Layer::KIND_NOT_SET, MakeStage<SumStage>};
    kind.backward_reads_x = false;
    kind.backward_reads_y = false;
    return kind;
  }();
  return kKind;
}

// Puts a sum of `reads` behind stage `at` of a chain. The stage behind it reads the sum.
void AddSum(int at, std::vector<int> reads, NetworkPlan* plan) {
  StagePlan sum;
  sum.kind = &SumKind();
  sum.reads = std::move(reads);
  sum.inputs = sum.outputs = plan->stages[at].outputs;
  sum.map = {plan->stages[at].map.to, plan->stages[at].map.to, {}};
  plan->stages.insert(plan->stages.begin() + at + 1, sum);
  for (size_t i = at + 2; i < plan->stages.size(); ++i) {
    for (int& read : plan->stages[i].reads) read += read >= at ? 1 : 0;
  }
}

// The parts of a network on a plan of one's own.
struct Parts {
  Parts(const v1::Model& model_of, NetworkPlan planned, int64_t batch_max, Backend& backend)
      : model(model_of), plan(std::move(planned)) {
    options.batch_max = batch_max;
    input = std::make_unique<NetworkInput>(plan, model.loss(), options, backend.memory());
    arrays = *NetworkArrays::Create(plan, options, backend.memory());
    stages = *NetworkStages::Create(plan, options, *arrays, backend);
    pass = *TrainingPass::Create(model, plan, options, *stages, *arrays, backend);
    steps = std::make_unique<TrainingSteps>(plan, *input, *pass, *stages, backend);
    back = *BackHalf::Create(plan, options, *pass, backend);
    evaluation =
        *NetworkEvaluation::Create(model, plan, options, *input, *stages, steps.get(), backend);
    arrays->SetInitialValues(7);
  }

  double Loss(const Batch& batch) { return steps->TrainStep(batch, {})->loss; }

  const v1::Model model;
  const NetworkPlan plan;
  NetworkOptions options;
  std::unique_ptr<NetworkInput> input;
  std::unique_ptr<NetworkArrays> arrays;
  std::unique_ptr<NetworkStages> stages;
  std::unique_ptr<TrainingPass> pass;
  std::unique_ptr<TrainingSteps> steps;
  std::unique_ptr<BackHalf> back;
  std::unique_ptr<NetworkEvaluation> evaluation;
};

constexpr int64_t kRows = 8;

// The derivative of the loss with respect to `*value`, by differences.
double Slope(Parts* parts, const Batch& batch, float* value) {
  const float kept = *value;
  constexpr float kStep = 1e-2f;
  *value = kept + kStep;
  const double above = parts->Loss(batch);
  *value = kept - kStep;
  const double below = parts->Loss(batch);
  *value = kept;
  return (above - below) / (2 * kStep);
}

// Stages 0 and 1 are linear, 2 a batch norm, 3 the sum of its output and the first layer's, 4 the sum of that and
// both before, and the last layer.
NetworkPlan Branched(const v1::Model& model) {
  NetworkPlan plan = *PlanOf(model);
  AddSum(2, {2, 0}, &plan);
  AddSum(3, {3, 1, 0}, &plan);
  return plan;
}

const char kModel[] = "6 linear:5 linear:5 norm linear:3 softmax";

}  // namespace

TEST_CASE("gradients through sums and branches are those of the loss", "[graph]") {
  const auto cpu = Cpu();
  const v1::Model model = ModelOf(kModel);
  Parts parts(model, Branched(model), kRows, *cpu);
  CHECK_FALSE(IsChain(parts.plan));
  const Rows data(model, kRows, 3);
  for (int p = 0; p < static_cast<int>(parts.plan.shape.parameters.size()); ++p) {
    REQUIRE(parts.steps->TrainStep(data.batch(), {}).ok());
    const absl::Span<const float> gradient = parts.arrays->gradient(p);
    const std::vector<float> want(gradient.begin(), gradient.end());
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(parts.plan.shape.parameters[p].name, i);
      const double slope = Slope(&parts, data.batch(), &parts.arrays->parameter(p)[i]);
      CHECK(want[i] == Approx(slope).epsilon(0.02).margin(0.002));
    }
  }
}

TEST_CASE("the gradient of an input that two stages read is the sum of both", "[graph][half]") {
  const auto cpu = Cpu();
  const v1::Model model = ModelOf("3 4 4 conv:2:3 linear:8 linear:8 linear:3 softmax");
  NetworkPlan plan = *HalfOf(*PlanOf(model), {1, 4});
  REQUIRE(plan.shape.inputs() == 8);
  // The second layer and the sum behind it read what the half reads.
  AddSum(1, {1, kNetworkInput}, &plan);
  Parts parts(model, plan, kRows, *cpu);
  const Rows labels(model, kRows, 3);
  std::vector<float> activations(kRows * 8);
  for (size_t i = 0; i < activations.size(); ++i) {
    activations[i] = static_cast<float>((i * 31) % 17) / 17;
  }
  Batch batch = labels.batch();
  batch.inputs = activations.data();
  const auto train = [&] {
    const double loss = parts.Loss(batch);
    const absl::Span<const float> gradient = *parts.back->InputGradient();
    const std::vector<float> kept(gradient.begin(), gradient.end());
    parts.back->Finish();
    return std::make_pair(loss, kept);
  };
  const std::vector<float> want = train().second;
  for (size_t i = 0; i < activations.size(); ++i) {
    const float kept = activations[i];
    activations[i] = kept + 1e-2f;
    const double above = train().first;
    activations[i] = kept - 1e-2f;
    const double below = train().first;
    activations[i] = kept;
    CHECK(want[i] == Approx((above - below) / 2e-2).epsilon(0.02).margin(0.002));
  }
}

TEST_CASE("evaluation goes through sums and branches as training does", "[graph][evaluation]") {
  const auto cpu = Cpu();
  const v1::Model model = ModelOf(kModel);
  Parts parts(model, Branched(model), kRows, *cpu);
  const Rows data(model, kRows, 3);
  const Batch batch = data.batch();
  // Calibrated on the minibatch alone, its statistics are those of training.
  BatchExamples examples(batch, parts.plan.shape.inputs());
  const auto constants = parts.evaluation->Calibrate(&examples);
  REQUIRE(constants.ok());
  const auto scores = parts.evaluation->Score(batch, *constants);
  REQUIRE(scores.ok());
  CHECK(scores->loss_sum / kRows == Approx(parts.Loss(batch)).epsilon(1e-5));
}

TEST_CASE("a network of branches takes what MemoryNeeded says", "[graph][memory]") {
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  const v1::Model model = ModelOf(kModel);
  const NetworkPlan plan = Branched(model);
  const NetworkMemory want = MemoryNeeded(plan, kRows, Precision::kF32, 20);
  Parts parts(model, plan, kRows, backend);
  CHECK(backend.counting.held == want.held_bytes);
  const Rows sample(model, 20, 3);
  const Batch batch = sample.batch();
  BatchExamples examples(batch, plan.shape.inputs());
  REQUIRE(parts.evaluation->Calibrate(&examples).ok());
  CHECK(backend.counting.most == want.held_bytes + want.calibration_bytes);
}

}  // namespace tessera
