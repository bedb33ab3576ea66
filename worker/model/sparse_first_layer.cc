#include "worker/model/sparse_first_layer.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<SparseFirstLayer>> SparseFirstLayer::Create(
    const NetworkPlan& plan, const NetworkOptions& options, SparseLinearStage* stage,
    NetworkArrays& arrays, Backend& backend) {
  auto made = std::unique_ptr<SparseFirstLayer>(
      new SparseFirstLayer(plan, options, stage, arrays, backend));
  // In one piece the gradient of the layer's outputs stays where the backward pass wrote it until the weight has moved.
  if (options.steps_first_weight && options.minibatch_max > 0) {
    const int64_t floats = options.minibatch_max * plan.stages[0].outputs;
    TESSERA_ASSIGN_OR_RETURN(made->all_dy_, Buffer<float>::Create(backend.memory(), floats));
  }
  return made;
}

void SparseFirstLayer::Begin(const Batch& batch) {
  TESSERA_CHECK(!steps_weight_ || batch.rows == batch.whole_rows() ||
                batch.whole_rows() * layer_.outputs <= all_dy_.size());
  last_batch_ = Batch();
}

void SparseFirstLayer::Backward(const Batch& batch, const float* dy, GradientDelivery* delivery) {
  const StageGradients to = delivery->PlacesOf(layer_, batch);
  if (!steps_weight_) {
    stage_.Backward(batch.rows, batch.sparse, dy, to);
    return delivery->Deliver(layer_, batch, nullptr);
  }
  stage_.BackwardBias(batch.rows, dy, to);
  delivery->Deliver(layer_, batch, nullptr);
  last_batch_ = batch;
  last_dy_ = dy;
  // The next piece's backward pass writes over dy, and the weight moves behind the last piece only.
  if (batch.rows == batch.whole_rows()) return;
  backend_.memory().Copy(dy, batch.rows * layer_.outputs * static_cast<int64_t>(sizeof(float)),
                         all_dy_.data() + batch.first_row * layer_.outputs);
  last_dy_ = all_dy_.data();
}

void SparseFirstLayer::Step(float a) {
  TESSERA_CHECK(steps_weight_ && last_batch_.rows > 0 && last_batch_.is_last());
  SparseRows x = last_batch_.sparse;
  // The sparse rows of all pieces lie in the same arrays: back to those of the minibatch's first row.
  x.begin -= last_batch_.first_row;
  stage_.AddWeightGradient(last_batch_.whole_rows(), x, last_dy_, a,
                           arrays_.device_parameter(layer_.weight).data());
  last_batch_ = Batch();
}

}  // namespace tessera
