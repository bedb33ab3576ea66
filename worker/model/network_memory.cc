#include "worker/model/network_memory.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "kernels/bf16.h"
#include "kernels/loss.h"
#include "worker/model/step_numbers.h"

namespace tessera {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kBf16Bytes = sizeof(Bf16);

GraphNode NodeOf(const StagePlan& stage) {
  GraphNode node;
  node.reads = stage.reads;
  node.width = stage.outputs;
  return node;
}

std::vector<GraphNode> TrainingGraphOf(const NetworkPlan& plan) {
  std::vector<GraphNode> nodes;
  for (const StagePlan& stage : plan.stages) {
    GraphNode node = NodeOf(stage);
    node.in_place = stage.kind->forward_in_place;
    node.learns = stage.learns();
    node.backward_in_place = stage.kind->backward_in_place;
    node.backward_reads_x = stage.kind->backward_reads_x;
    node.backward_reads_y =
        stage.kind->backward_reads_y || (stage.is_joined && stage.kind->joined_reads_y);
    node.keeps_signs = stage.kind->keeps_signs;
    node.needs_own_y = !stage.kind->reads_signs_of_y;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<GraphNode> EvaluationGraphOf(const NetworkPlan& plan) {
  std::vector<GraphNode> nodes;
  for (const StagePlan& stage : plan.stages) {
    GraphNode node = NodeOf(stage);
    node.is_identity = stage.is_off_in_evaluation();
    node.in_place = stage.is_elementwise() || stage.kind->forward_in_place;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

int64_t Sum(const std::vector<int64_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), int64_t{0});
}

}  // namespace

NetworkBuffers BuffersOf(const NetworkPlan& plan, bool trains) {
  NetworkBuffers buffers;
  if (trains) {
    TrainingWishes wishes;
    wishes.keeps_output = plan.part == ModelPart::kFront;
    if (plan.part == ModelPart::kBack) wishes.input_gradient_width = plan.shape.inputs();
    buffers.training = PlanTraining(TrainingGraphOf(plan), wishes);
    buffers.widths = buffers.training.widths;
  }
  if (plan.part != ModelPart::kWhole) return buffers;
  ForwardBuffers evaluation = PlanForward(EvaluationGraphOf(plan));
  const std::vector<int> places = ShareBuffers(evaluation.widths, &buffers.widths);
  for (int& output : evaluation.outputs) {
    if (output != kNetworkInput) output = places[output];
  }
  buffers.evaluated = std::move(evaluation.outputs);
  return buffers;
}

bool CalibratesInPlace(const NetworkPlan& plan) {
  int64_t readers = 0;
  for (const StagePlan& stage : plan.stages) {
    readers += std::count(stage.reads.begin(), stage.reads.end(), kNetworkInput);
  }
  return readers == 1 && !plan.stages.front().is_elementwise();
}

ForwardBuffers CalibrationBuffersOf(const NetworkPlan& plan, bool copies_inputs) {
  std::vector<GraphNode> nodes = EvaluationGraphOf(plan);
  int64_t constants = 0;
  size_t end = 0;
  while (constants < plan.constants) constants += plan.stages[end++].constants();
  nodes.resize(end);
  return PlanForward(nodes, copies_inputs ? plan.shape.inputs() : 0);
}

int64_t KeptFloats(const NetworkPlan& plan, int64_t batch_max, bool trains) {
  int64_t floats = 0;
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind->kept_floats != nullptr) {
      floats += stage.kind->kept_floats(stage, batch_max, trains);
    }
  }
  return floats;
}

NetworkMemory MemoryNeeded(const NetworkPlan& plan, int64_t batch_max, Precision precision,
                           int64_t calibration_rows, bool sparse_input, bool steps_first_weight,
                           int64_t minibatch_max) {
  const int64_t arrays = plan.parameter_floats + plan.constants;
  int64_t floats = arrays + batch_max * Sum(BuffersOf(plan, /*trains=*/true).widths) +
                   KeptFloats(plan, batch_max, /*trains=*/true);
  floats += plan.parameter_floats - GradientsBegin(plan, steps_first_weight);
  if (steps_first_weight && minibatch_max > batch_max) {
    floats += minibatch_max * plan.stages[0].outputs;
  }
  int64_t bf16 = 0;
  int64_t outputs_max = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    if (!stage.kind->is_product) continue;
    const bool in_f32 = i == 0 && sparse_input;
    if (!in_f32) bf16 += batch_max * stage.inputs + stage.weight_size;
    outputs_max = std::max(outputs_max, stage.outputs);
  }
  if (plan.part == ModelPart::kBack) floats += plan.stage_floats_max;
  bf16 += batch_max * outputs_max;
  NetworkMemory memory;
  memory.held_bytes = floats * kFloatBytes +
                      static_cast<int64_t>(kStepsBegunMax * sizeof(LossSums) + sizeof(StepNumbers));
  if (precision == Precision::kBf16) memory.held_bytes += bf16 * kBf16Bytes;
  if (plan.part != ModelPart::kWhole) return memory;
  const int64_t evaluation = batch_max * Sum(BuffersOf(plan, /*trains=*/false).widths) +
                             KeptFloats(plan, batch_max, /*trains=*/false);
  memory.evaluation_bytes =
      (arrays + evaluation) * kFloatBytes + static_cast<int64_t>(sizeof(LossSums));
  if (plan.constants > 0) {
    const bool copies_inputs = !CalibratesInPlace(plan) && !sparse_input;
    memory.calibration_bytes =
        calibration_rows * Sum(CalibrationBuffersOf(plan, copies_inputs).widths) * kFloatBytes;
  }
  return memory;
}

absl::StatusOr<int64_t> DeviceScratchBytes(const NetworkPlan& plan, int64_t rows,
                                           Precision precision, Backend& backend) {
  int64_t most = 0;
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind->scratch_bytes == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const int64_t bytes,
                             stage.kind->scratch_bytes(stage, rows, precision, backend));
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace tessera
