#include "worker/model/network_evaluation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/model/buffer_plan.h"
#include "worker/model/model_loss.h"
#include "worker/model/network_memory.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<NetworkEvaluation>> NetworkEvaluation::Create(
    const v1::Model& model, const NetworkPlan& plan, const NetworkOptions& options,
    NetworkInput& input, NetworkStages& stages, const TrainingSteps* steps, Backend& backend) {
  auto made = std::unique_ptr<NetworkEvaluation>(
      new NetworkEvaluation(model, plan, options, input, stages, steps, backend));
  TESSERA_ASSIGN_OR_RETURN(made->constants_,
                           Buffer<float>::Create(backend.memory(), plan.constants));
  return made;
}

NetworkEvaluation::NetworkEvaluation(const v1::Model& model, const NetworkPlan& plan,
                                     const NetworkOptions& options, NetworkInput& input,
                                     NetworkStages& stages, const TrainingSteps* steps,
                                     Backend& backend)
    : model_(model),
      plan_(plan),
      batch_max_(options.batch_max),
      reads_sparse_(options.sparse_input),
      input_(input),
      stages_(stages),
      steps_(steps),
      backend_(backend),
      activations_(plan.stages, stages.AddressesOf(stages.buffers().evaluated)) {}

absl::Status NetworkEvaluation::CheckWhole() const {
  if (plan_.part == ModelPart::kWhole) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "network: a half of a model only trains, want the whole for evaluation");
}

absl::Status NetworkEvaluation::CheckConstants(absl::string_view what,
                                               absl::Span<const float> constants) const {
  if (static_cast<int64_t>(constants.size()) == plan_.constants) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": constants are ", constants.size(), " values, want ", plan_.constants));
}

const float* NetworkEvaluation::Forward(const Batch& staged, absl::Span<const float> constants) {
  backend_.memory().CopyIn(constants.data(), constants_.bytes(), constants_.data());
  const float* own = constants_.data();
  const int count = static_cast<int>(plan_.stages.size());
  for (int i = 0; i < count; ++i) {
    if (plan_.stages[i].is_off_in_evaluation()) continue;
    float* const y = activations_.output(i);
    if (i == 0 && reads_sparse_) {
      stages_.sparse_first()->Forward(staged.rows, staged.sparse, y);
    } else {
      stages_.stage(i).Evaluate(staged.rows, activations_.inputs(i, staged.inputs), own, y);
    }
    own += plan_.stages[i].constants();
  }
  const float* const last = activations_.output(count - 1);
  return last == nullptr ? staged.inputs : last;
}

absl::Status NetworkEvaluation::Predict(const Batch& batch, absl::Span<const float> constants,
                                        absl::Span<float> scores) {
  TESSERA_CHECK(steps_ == nullptr || steps_->begun() == 0);
  TESSERA_RETURN_IF_ERROR(CheckWhole());
  TESSERA_RETURN_IF_ERROR(CheckConstants("predict", constants));
  const int64_t values = batch.rows * plan_.shape.widths.back();
  if (static_cast<int64_t>(scores.size()) != values) {
    return absl::InvalidArgumentError(absl::StrCat("predict: room is for ", scores.size(),
                                                   " scores, want ", values, ", ",
                                                   plan_.shape.widths.back(), " for each row"));
  }
  TESSERA_ASSIGN_OR_RETURN(const Batch staged, input_.TakeInputs(batch));
  const float* const last = Forward(staged, constants);
  backend_.memory().CopyOut(last, values * static_cast<int64_t>(sizeof(float)), scores.data());
  return backend_.Finish();
}

absl::StatusOr<Scores> NetworkEvaluation::Score(const Batch& batch,
                                                absl::Span<const float> constants) {
  TESSERA_CHECK(steps_ == nullptr || steps_->begun() == 0);
  TESSERA_RETURN_IF_ERROR(CheckWhole());
  TESSERA_RETURN_IF_ERROR(CheckConstants("score", constants));
  TESSERA_ASSIGN_OR_RETURN(const Batch staged, input_.Take(batch));
  const float* const last = Forward(staged, constants);
  ComputeLoss(model_, plan_.shape, staged, last, nullptr, stages_.sums(), backend_);
  stages_.sums_view().Fetch(0, 1);
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return ScoresOf(*stages_.sums_view().data(), batch.rows * plan_.shape.places());
}

std::vector<NetworkEvaluation::Chunk> NetworkEvaluation::ChunksOf(
    absl::Span<const Batch> sample) const {
  std::vector<Chunk> chunks;
  for (const Batch& batch : sample) {
    for (int64_t row = 0; row < batch.rows; row += batch_max_) {
      chunks.push_back(
          {batch.inputs + row * plan_.shape.inputs(), std::min(batch_max_, batch.rows - row)});
    }
  }
  return chunks;
}

void NetworkEvaluation::FirstOfSparse(absl::Span<const Batch> sample, float* y) {
  for (const Batch& batch : sample) {
    for (int64_t row = 0; row < batch.rows; row += batch_max_) {
      const int64_t rows = std::min(batch_max_, batch.rows - row);
      SparseRows x = batch.sparse;
      x.begin += row;
      stages_.sparse_first()->Forward(rows, x, y);
      y += rows * plan_.stages[0].outputs;
    }
  }
}

void NetworkEvaluation::FirstOfChunks(const std::vector<Chunk>& chunks, float* y) {
  for (const Chunk& chunk : chunks) {
    stages_.stage(0).Evaluate(chunk.rows, {&chunk.values, 1}, nullptr, y);
    y += chunk.rows * plan_.stages[0].outputs;
  }
}

void NetworkEvaluation::EvaluateInChunks(int i, int64_t rows, const StageInputs& x, float* y) {
  const StagePlan& plan = plan_.stages[i];
  std::vector<const float*> from(x.begin(), x.end());
  for (int64_t row = 0; row < rows; row += batch_max_) {
    for (size_t k = 0; k < from.size(); ++k) {
      const int read = plan.reads[k];
      const int64_t width =
          read == kNetworkInput ? plan_.shape.inputs() : plan_.stages[read].outputs;
      from[k] = x[k] + row * width;
    }
    stages_.stage(i).Evaluate(std::min(batch_max_, rows - row), from, nullptr,
                              y + row * plan.outputs);
  }
}

absl::StatusOr<std::vector<float>> NetworkEvaluation::Calibrate(absl::Span<const Batch> sample) {
  TESSERA_RETURN_IF_ERROR(CheckWhole());
  if (plan_.constants == 0) return std::vector<float>();
  int64_t rows = 0;
  for (const Batch& batch : sample) {
    if (batch.rows > 0) TESSERA_RETURN_IF_ERROR(input_.CheckInputs(batch));
    rows += batch.rows;
  }
  if (rows == 0) {
    return absl::InvalidArgumentError("calibration: the sample is empty, want at least one row");
  }

  Memory& memory = backend_.memory();
  const bool reads_in_place = CalibratesInPlace(plan_) && memory.host_addressable();
  const bool copies_inputs = !reads_in_place && !reads_sparse_;
  const ForwardBuffers buffers = CalibrationBuffersOf(plan_, copies_inputs);
  std::vector<Buffer<float>> held;
  for (const int64_t width : buffers.widths) {
    TESSERA_ASSIGN_OR_RETURN(Buffer<float> buffer, Buffer<float>::Create(memory, rows * width));
    held.push_back(std::move(buffer));
  }
  const auto address = [&](int buffer) {
    return buffer == kNetworkInput ? nullptr : held[buffer].data();
  };
  const std::vector<Chunk> chunks = reads_sparse_ ? std::vector<Chunk>() : ChunksOf(sample);
  float* const input = address(buffers.input);
  if (copies_inputs) {
    float* to = input;
    for (const Chunk& chunk : chunks) {
      const int64_t values = chunk.rows * plan_.shape.inputs();
      memory.CopyIn(chunk.values, values * static_cast<int64_t>(sizeof(float)), to);
      to += values;
    }
  }
  std::vector<float*> outputs;
  for (const int buffer : buffers.outputs) outputs.push_back(address(buffer));
  ActivationAddresses activations(plan_.stages, outputs);
  float* constants = constants_.data();
  for (int i = 0; i < static_cast<int>(outputs.size()); ++i) {
    const StagePlan& plan = plan_.stages[i];
    if (plan.is_off_in_evaluation()) continue;
    if (i == 0 && reads_sparse_) {
      FirstOfSparse(sample, outputs[0]);
      continue;
    }
    if (i == 0 && reads_in_place) {
      FirstOfChunks(chunks, outputs[0]);
      continue;
    }
    const StageInputs x = activations.inputs(i, input);
    if (!plan.is_elementwise()) {
      EvaluateInChunks(i, rows, x, outputs[i]);
      continue;
    }
    const Image& image = plan.map.from;
    const UnitColumns columns{{rows * image.positions(), image.channels}, 0};
    stages_.stage(i).Calibrate(columns, x[0], constants);
    stages_.stage(i).EvaluateColumns(columns, x[0], constants, outputs[i]);
    constants += plan.constants();
  }
  std::vector<float> result(plan_.constants);
  memory.CopyOut(constants_.data(), constants_.bytes(), result.data());
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return result;
}

}  // namespace tessera
