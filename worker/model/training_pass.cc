#include "worker/model/training_pass.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "worker/model/model_loss.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<TrainingPass>> TrainingPass::Create(
    const v1::Model& model, const NetworkPlan& plan, const NetworkOptions& options,
    NetworkStages& stages, NetworkArrays& arrays, Backend& backend) {
  auto made =
      std::unique_ptr<TrainingPass>(new TrainingPass(model, plan, options, stages, backend));
  TESSERA_ASSIGN_OR_RETURN(made->delivery_, GradientDelivery::Create(plan, arrays, backend));
  if (stages.sparse_first() != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(
        made->sparse_first_,
        SparseFirstLayer::Create(plan, options, stages.sparse_first(), arrays, backend));
  }
  return made;
}

TrainingPass::TrainingPass(const v1::Model& model, const NetworkPlan& plan,
                           const NetworkOptions& options, NetworkStages& stages, Backend& backend)
    : model_(model),
      plan_(plan),
      steps_first_weight_(options.steps_first_weight),
      stages_(stages),
      backend_(backend),
      // Sparse rows lie elsewhere each time. On a CPU a kernel runs when it is called: there is nothing to repeat.
      sequences_(!options.sparse_input && !backend.memory().host_addressable(), backend),
      activations_(plan.stages, stages.AddressesOf(stages.buffers().training.outputs)),
      gradients_(stages.AddressesOf(stages.buffers().training.gradients)),
      input_gradient_(stages.buffer(stages.buffers().training.input_gradient)) {
  for (const auto& written : stages.buffers().training.input_gradients) {
    std::vector<float*>& addresses = input_gradients_.emplace_back();
    for (const auto& to : written) addresses.push_back(stages.buffer(to.buffer));
  }
  for (const StagePlan& stage : plan.stages) draws_ = draws_ || stage.kind->draws;
}

StepForm TrainingPass::Begin(const Batch& staged, const StepKey& key, int sums_place) {
  // FinishBackward must come first: the gradients that it writes are those of the rows that lie there now.
  TESSERA_CHECK(!left_.has_value());
  if (sparse_first_ != nullptr) sparse_first_->Begin(staged);
  rows_begun_ = staged.rows;
  // A key has 16 bits for the worker's rank (kernels/dropout_key.h).
  if (draws_) {
    TESSERA_CHECK(key.rank < uint64_t{1} << 16);
    // Sent in front of the step's kernels, which read it from memory, as a repeated sequence has fixed arguments.
    const DropoutKey dropout{key.seed, key.step, key.rank, static_cast<uint64_t>(staged.first_row)};
    backend_.memory().CopyIn(&dropout, sizeof(dropout), &stages_.numbers()->dropout);
  }
  // Weights stay what they are from the first piece or batch of an update to its last.
  const bool keeps_rounded =
      std::exchange(keeps_rounded_, false) || !staged.is_first() || staged.adds;
  return {staged, sums_place, !keeps_rounded};
}

void TrainingPass::Forward(const StepForm& form) {
  sequences_.Forward(form, [&] { QueueForward(form); });
}

void TrainingPass::QueueForward(const StepForm& form) {
  const Batch& batch = form.batch;
  for (int i = 0; i <= last(); ++i) {
    float* const y = activations_.output(i);
    if (i == 0 && stages_.sparse_first() != nullptr) {
      stages_.sparse_first()->Forward(batch.rows, batch.sparse, y);
      continue;
    }
    if (form.rounds) stages_.stage(i).RoundWeight();
    stages_.stage(i).Forward(batch.rows, activations_.inputs(i, batch.inputs), y);
  }
  if (plan_.part == ModelPart::kFront) return;
  ComputeLoss(model_, plan_.shape, batch, output(), output_gradient(),
              stages_.sums() + form.sums_place, backend_);
}

void TrainingPass::Backward(const StepForm& form, GradientWork* work) {
  // Gradients to which other rows will add are not complete yet.
  if (!form.batch.ends_gradients()) work = nullptr;
  // What is left for FinishBackward is queued later, outside the sequence.
  if (leaves_first_stage()) left_ = Left{form.batch, work};
  sequences_.Backward(form, work, [&] { QueueBackward(form.batch, work); });
}

void TrainingPass::QueueBackward(const Batch& batch, GradientWork* work) {
  for (int i = last(); i >= 0; --i) {
    if (gradients_[i] == nullptr) continue;  // Neither it nor anything before it learns.
    BackwardOf(i, batch, work);
    AddParts(i, batch.rows);
  }
}

void TrainingPass::BackwardOf(int i, const Batch& batch, GradientWork* work) {
  float* const dy = gradients_[i];
  if (i == 0 && sparse_first_ != nullptr) {
    return sparse_first_->Backward(batch, dy, delivery_.get());
  }
  const StageInputs x = activations_.inputs(i, batch.inputs);
  const float* const y = activations_.output(i);
  // With no place for the parameters' gradients the stage writes that of its inputs alone.
  if (i == 0 && leaves_first_stage()) {
    return stages_.stage(0).Backward(batch.rows, x, y, dy, {}, input_gradients_[0]);
  }
  delivery_->Backward(plan_.stages[i], stages_.stage(i), batch, x, y, dy, input_gradients_[i],
                      work);
}

void TrainingPass::AddParts(int i, int64_t rows) {
  const TrainingBuffers& buffers = stages_.buffers().training;
  for (size_t k = 0; k < buffers.input_gradients[i].size(); ++k) {
    const TrainingBuffers::InputGradient& written = buffers.input_gradients[i][k];
    // The part that came first was written where the sum lies.
    if (!written.adds) continue;
    const int read = plan_.stages[i].reads[k];
    const int64_t width = read == kNetworkInput ? plan_.shape.inputs() : plan_.stages[read].outputs;
    backend_.vector().Axpy(rows * width, 1.0f, stages_.buffer(written.buffer),
                           stages_.buffer(buffers.GradientOf(read)));
  }
}

void TrainingPass::FinishBackward() {
  if (!left_.has_value()) return;
  const auto [batch, work] = *std::exchange(left_, std::nullopt);
  const StagePlan& first = plan_.stages[0];
  // The gradient of the inputs is there since Backward.
  const std::vector<float*> no_dx(first.reads.size(), nullptr);
  stages_.stage(0).Backward(batch.rows, activations_.inputs(0, batch.inputs),
                            activations_.output(0), gradients_[0],
                            delivery_->PlacesOf(first, batch), no_dx);
  delivery_->Deliver(first, batch, work);
}

}  // namespace tessera
