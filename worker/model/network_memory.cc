#include "worker/model/network_memory.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "kernels/bf16.h"
#include "kernels/loss.h"
#include "worker/model/step_numbers.h"

namespace tessera {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kBf16Bytes = sizeof(Bf16);

// What is kept of a piece behind one pass takes so many pages at most, so that unused ends of pages are a sixteenth of
// it at most. Small models have fewer pages than that, which are no smaller than 4 KiB: each is a copy of its own.
constexpr int64_t kPagesOfPiece = 16;
constexpr int64_t kPageFloatsMin = 1024;

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

int64_t Quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Gives the buffers of another pass their places in the memory, too. Passes use it at different times, so that it is as
// large as the largest of them needs. Returns the number of the first buffer.
int Add(const BufferPlaces& places, NetworkBuffers* buffers) {
  const int first = static_cast<int>(buffers->offsets.size());
  buffers->offsets.insert(buffers->offsets.end(), places.offsets.begin(), places.offsets.end());
  buffers->floats = std::max(buffers->floats, places.floats);
  return first;
}

void AddCalibration(const NetworkPlan& plan, NetworkBuffers* buffers) {
  CalibrationPlan& calibration = buffers->calibration;
  calibration = CalibrationPlanOf(plan.stages);
  const int first = Add(calibration.places, buffers);
  for (int& output : calibration.outputs) {
    if (output >= 0) output += first;
  }
  for (CalibrationPass& pass : calibration.passes) {
    for (KeptValue& value : pass.kept) value.buffer += first;
  }
}

}  // namespace

NetworkBuffers BuffersOf(const NetworkPlan& plan, bool trains) {
  NetworkBuffers buffers;
  if (trains) {
    TrainingWishes wishes;
    // The front's output is read until the other half's gradient has come.
    wishes.keeps_output = plan.part == ModelPart::kFront;
    if (plan.part == ModelPart::kBack) wishes.input_gradient_width = plan.shape.inputs();
    buffers.training = PlanTraining(TrainingGraphOf(plan), wishes);
    Add(buffers.training.places, &buffers);
  }
  if (plan.part != ModelPart::kWhole) return buffers;
  ForwardBuffers evaluation = PlanForward(EvaluationGraphOf(plan));
  const int first = Add(evaluation.places, &buffers);
  for (int& output : evaluation.outputs) {
    if (output != kNetworkInput) output += first;
  }
  buffers.evaluated = std::move(evaluation.outputs);
  AddCalibration(plan, &buffers);
  return buffers;
}

CalibrationRoom CalibrationRoomOf(const NetworkBuffers& buffers, int64_t batch_max, int64_t rows,
                                  int64_t bytes_max) {
  CalibrationRoom room;
  const int64_t pieces = (rows + batch_max - 1) / batch_max;
  const int64_t kept = batch_max * buffers.calibration.kept_floats_max();
  // A single piece stays in the buffers, so that nothing need be kept.
  if (pieces < 2 || kept == 0) return room;
  room.page_floats = std::max(kPageFloatsMin, Quotient(kept, kPagesOfPiece));
  // Calibration's own buffers come first in the memory, and what is behind them lies free for pages.
  const int64_t unused = buffers.floats - buffers.calibration.places.floats;
  const int64_t free_pages = batch_max * unused / room.page_floats;
  const int64_t pages_max = bytes_max / kFloatBytes / room.page_floats;
  const int64_t wanted = pieces * Quotient(kept, room.page_floats);
  const int64_t more = std::min(std::max<int64_t>(0, wanted - free_pages), pages_max);
  room.more_floats = more * room.page_floats;
  return room;
}

int64_t CalibrationSums(const NetworkPlan& plan) { return plan.constants / 2 * 3; }

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
  int64_t floats = arrays + batch_max * BuffersOf(plan, /*trains=*/true).floats +
                   KeptFloats(plan, batch_max, /*trains=*/true);
  floats += plan.parameter_floats - GradientsBegin(plan, steps_first_weight);
  // With pieces the gradients of all rows' outputs are held until the first weight has moved.
  if (steps_first_weight) {
    floats += minibatch_max * plan.stages[0].outputs;
  }
  int64_t bf16 = 0;
  int64_t outputs_max = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    if (!stage.kind->is_product) continue;
    // A sparse first layer computes in f32, whatever the precision.
    const bool in_f32 = i == 0 && sparse_input;
    if (!in_f32) bf16 += batch_max * stage.inputs + stage.weight_size;
    outputs_max = std::max(outputs_max, stage.outputs);
  }
  if (plan.part == ModelPart::kBack) floats += plan.stage_floats_max;
  // The rounded gradient is that of one stage at a time, so that all share the widest one's room.
  bf16 += batch_max * outputs_max;
  NetworkMemory memory;
  memory.held_bytes = floats * kFloatBytes +
                      static_cast<int64_t>(kStepsBegunMax * sizeof(LossSums) + sizeof(StepNumbers));
  if (precision == Precision::kBf16) memory.held_bytes += bf16 * kBf16Bytes;
  if (plan.part != ModelPart::kWhole) return memory;
  const int64_t evaluation = batch_max * BuffersOf(plan, /*trains=*/false).floats +
                             KeptFloats(plan, batch_max, /*trains=*/false);
  memory.evaluation_bytes =
      (arrays + evaluation) * kFloatBytes + static_cast<int64_t>(sizeof(LossSums));
  if (plan.constants == 0 || calibration_rows == 0) return memory;
  const auto calibration = [&](bool trains) {
    const CalibrationRoom room =
        CalibrationRoomOf(BuffersOf(plan, trains), batch_max, calibration_rows);
    return CalibrationSums(plan) * static_cast<int64_t>(sizeof(double)) +
           room.more_floats * kFloatBytes;
  };
  memory.calibration_bytes = calibration(/*trains=*/true);
  memory.evaluation_calibration_bytes = calibration(/*trains=*/false);
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
