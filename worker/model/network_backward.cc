// A network's backward pass, and what follows its gradients.
#include <utility>

#include "common/base/check.h"
#include "worker/model/network.h"

namespace tessera {

void Network::Backward(const Batch& batch, GradientWork* work) {
  float* dy = flow_[0].data();
  float* spare = flow_[1].data();
  for (int i = static_cast<int>(stages_.size()) - 1; i >= 0; --i) {
    const StagePlan& plan = plan_.stages[i];
    if (stages_[i] == nullptr) return BackwardSparse(batch, dy);
    if (!plan.wants_input_gradient) {
      // Nothing before it learns; it may itself.
      if (plan.weight >= 0) BackwardOfStage(i, batch, dy, nullptr, work);
      return;
    }
    float* dx = plan.kind->backward_in_place ? dy : spare;
    if (i == 0) dx = input_gradient_.data();  // of a back
    if (i == 0 && leaves_first_layer()) {
      first_layer_dy_ = dy;
      return stages_[0]->Backward(batch.rows, {&batch.inputs, 1}, values_[1], dy, {}, {&dx, 1});
    }
    BackwardOfStage(i, batch, dy, dx, work);
    if (dx == spare) std::swap(dy, spare);
  }
}

void Network::BackwardOfStage(int i, const Batch& batch, const float* dy, float* dx,
                              GradientWork* work) {
  const StagePlan& plan = plan_.stages[i];
  const float* const x = i == 0 ? batch.inputs : values_[i];
  const StageGradients to = GradientsOf(plan, batch);
  Stage& stage = *stages_[i];
  const WeightProduct product =
      offers_products(batch, work) ? stage.weight_product(batch.rows) : WeightProduct();
  if (product.x == nullptr) {
    stage.Backward(batch.rows, {&x, 1}, values_[i + 1], dy, to, {&dx, 1});
    if (batch.adds) AddGradients(plan);
    return FollowGradients(plan, batch, work);
  }
  // The inputs' gradient reads the rounded weight, which a step by the product moves.
  StageGradients but_weight = to;
  but_weight.weight = nullptr;
  stage.Backward(batch.rows, {&x, 1}, values_[i + 1], dy, but_weight, {&dx, 1});
  if (work->QueueProduct(plan.weight, product)) {
    if (plan.bias >= 0) work->Queue(plan.bias);
    return;
  }
  stage.WeightGradient(batch.rows, to);
  FollowGradients(plan, batch, work);
}

// Where a weight's gradient is all of the minibatch's, and the work's alone.
bool Network::offers_products(const Batch& batch, const GradientWork* work) const {
  return work != nullptr && batch.is_first() && batch.ends_gradients() && !batch.adds &&
         gradients_view_.size() == 0 && !leaves_first_layer();
}

void Network::FollowGradients(const StagePlan& plan, const Batch& batch, GradientWork* work) {
  if (!batch.ends_gradients()) return;
  FetchGradients(plan);
  if (work == nullptr) return;
  for (const int parameter : {plan.weight, plan.bias}) {
    if (parameter >= 0) work->Queue(parameter);
  }
}

void Network::FetchGradients(const StagePlan& plan) {
  if (gradients_view_.size() == 0) return;
  for (const int parameter : {plan.weight, plan.bias}) {
    if (parameter < 0 || GradientAt(parameter) == nullptr) continue;
    gradients_view_.Fetch(plan_.parameter_offsets[parameter] - gradients_begin_,
                          shape().parameters[parameter].size());
  }
}

void Network::BackwardSparse(const Batch& batch, const float* dy) {
  const StageGradients to = GradientsOf(plan_.stages[0], batch);
  if (!options_.steps_first_weight) {
    sparse_first_->Backward(batch.rows, batch.sparse, dy, to);
    return FollowGradients(plan_.stages[0], batch, nullptr);
  }
  sparse_first_->BackwardBias(batch.rows, dy, to);
  FollowGradients(plan_.stages[0], batch, nullptr);
  last_batch_ = batch;
  last_dy_ = dy;
  if (batch.rows == batch.whole_rows()) return;
  const int64_t outputs = plan_.stages[0].outputs;
  backend_.memory().Copy(dy, batch.rows * outputs * static_cast<int64_t>(sizeof(float)),
                         first_dy_.data() + batch.first_row * outputs);
  last_dy_ = first_dy_.data();
}

void Network::StepFirstWeight(float a) {
  TESSERA_CHECK(options_.steps_first_weight && last_batch_.rows > 0 && last_batch_.is_last());
  float* const weight = parameters_.data() + plan_.parameter_offsets[plan_.stages[0].weight];
  SparseRows x = last_batch_.sparse;
  x.begin -= last_batch_.first_row;
  sparse_first_->AddWeightGradient(last_batch_.whole_rows(), x, last_dy_, a, weight);
  last_batch_ = Batch();
}

}  // namespace tessera
