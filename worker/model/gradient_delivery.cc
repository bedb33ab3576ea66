#include "worker/model/gradient_delivery.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<GradientDelivery>> GradientDelivery::Create(const NetworkPlan& plan,
                                                                           NetworkArrays& arrays,
                                                                           Backend& backend) {
  auto made = std::unique_ptr<GradientDelivery>(new GradientDelivery(plan, arrays, backend));
  if (plan.part == ModelPart::kBack) {
    // Only a model's back gets several batches for one update, so that others need no second place for gradients.
    TESSERA_ASSIGN_OR_RETURN(made->added_,
                             Buffer<float>::Create(backend.memory(), plan.stage_floats_max));
  }
  return made;
}

float* GradientDelivery::AddedAt(const StagePlan& stage, int parameter) const {
  const std::vector<int64_t>& offsets = plan_.parameter_offsets;
  // The parameters of a stage lie one behind the other, with the same padding as in the network.
  return added_.data() + offsets[parameter] - offsets[stage.weight];
}

StageGradients GradientDelivery::PlacesOf(const StagePlan& stage, const Batch& batch) const {
  const auto place = [&](int parameter) -> float* {
    if (parameter < 0) return nullptr;
    return batch.adds ? AddedAt(stage, parameter) : arrays_.GradientAt(parameter);
  };
  StageGradients to;
  to.mode = batch.is_first() ? WriteMode::kOverwrite : WriteMode::kAdd;
  to.weight = place(stage.factor());
  to.bias = place(stage.bias);
  return to;
}

// Where a weight's gradient is all of the minibatch's, and the work's alone.
bool GradientDelivery::OffersProducts(const Batch& batch, const GradientWork* work) const {
  return work != nullptr && batch.is_first() && batch.ends_gradients() && !batch.adds &&
         !arrays_.shows_gradients();
}

void GradientDelivery::Backward(const StagePlan& plan, Stage& stage, const Batch& batch,
                                const StageInputs& x, const float* y, const float* dy,
                                const InputGradients& dx, GradientWork* work) {
  const StageGradients to = PlacesOf(plan, batch);
  // A tied weight's gradient is a sum of two stages', of which neither may be taken alone.
  const WeightProduct product = OffersProducts(batch, work) && plan.tied_weight < 0
                                    ? stage.weight_product(batch.rows)
                                    : WeightProduct();
  if (product.x == nullptr) {
    stage.Backward(batch.rows, x, y, dy, to, dx);
    return Deliver(plan, batch, work);
  }
  // The inputs' gradient reads the rounded weight, which a step by the product moves.
  StageGradients but_weight = to;
  but_weight.weight = nullptr;
  stage.Backward(batch.rows, x, y, dy, but_weight, dx);
  if (work->QueueProduct(plan.weight, product)) {
    // The bias has an ordinary gradient, which Backward has written.
    if (plan.bias >= 0) work->Queue(plan.bias);
    return;
  }
  // The work refused, and has queued nothing: the product is computed now, while both of its factors are still there.
  stage.WeightGradient(batch.rows, to);
  Deliver(plan, batch, work);
}

void GradientDelivery::Deliver(const StagePlan& stage, const Batch& batch, GradientWork* work) {
  const int parameters[] = {stage.weight, stage.bias};
  for (const int parameter : parameters) {
    if (parameter < 0 || !batch.adds) continue;
    // The batch's gradient is complete before it is added: a product that went on from the sum would round otherwise.
    backend_.vector().Axpy(plan_.shape.parameters[parameter].size(), 1.0f,
                           AddedAt(stage, parameter), arrays_.GradientAt(parameter));
  }
  if (!batch.ends_gradients()) return;
  for (const int parameter : parameters) {
    if (parameter >= 0) arrays_.FetchGradient(parameter);
  }
  if (work == nullptr) return;
  for (const int parameter : parameters) {
    if (parameter >= 0) work->Queue(parameter);
  }
}

}  // namespace tessera
