#include "worker/model/norm_stages.h"

#include "common/base/check.h"

namespace tessera {
namespace {

// The groups of one row. The places of a sequence are normalised each by itself.
GroupsShape GroupsOfRow(const StagePlan& plan) {
  const Image& image = plan.map.from;
  if (image.is_sequence) return {image.places(), 1, image.channels, 1};
  if (plan.settings.has_layer_norm()) return {1, 1, image.size(), 1};
  return {1, image.positions(), image.channels, plan.settings.group_norm().groups()};
}

double EpsilonOf(const v1::Layer& layer) {
  return layer.has_layer_norm() ? layer.layer_norm().epsilon() : layer.group_norm().epsilon();
}

// Whether the parameters lie otherwise than the values do. A layer norm over images has a scale for each value, in the
// job's order [channels, height, width], while activations have channels innermost.
bool Turns(const StagePlan& plan) {
  const Image& image = plan.map.from;
  return plan.settings.has_layer_norm() && plan.weight >= 0 && image.channels > 1 &&
         image.positions() > 1 && !image.is_sequence;
}

ResponseWindow WindowOf(const v1::LocalResponseNorm& keys) {
  return {keys.size(), keys.alpha(), keys.beta(), keys.k()};
}

StageKind NormKind(v1::Layer::KindCase layer) {
  StageKind kind{layer, GroupNormStage::Create};
  kind.backward_in_place = true;
  kind.backward_reads_y = false;
  kind.kept_floats = GroupNormStage::KeptFloats;
  return kind;
}

}  // namespace

StageKind LayerNormStageKind() { return NormKind(v1::Layer::kLayerNorm); }

StageKind GroupNormStageKind() { return NormKind(v1::Layer::kGroupNorm); }

StageKind ResponseNormStageKind() {
  StageKind kind{v1::Layer::kLocalResponseNorm, MakeStage<ResponseNormStage>};
  kind.backward_reads_y = false;
  kind.scratch_bytes = [](const StagePlan& plan, int64_t rows, Precision,
                          Backend& backend) -> absl::StatusOr<int64_t> {
    const Image& image = plan.map.from;
    return backend.response_norm().ScratchBytes({rows * image.positions(), image.channels});
  };
  return kind;
}

int64_t GroupNormStage::KeptFloats(const StagePlan& plan, int64_t batch_max, bool trains) {
  const GroupsShape of_row = GroupsOfRow(plan);
  // The mean and 1/sigma of each group, kept from Forward to Backward.
  const int64_t statistics = 2 * batch_max * of_row.rows * of_row.groups;
  if (!Turns(plan)) return statistics;
  // Scale and shift in the order of the values, and in training their gradients in that order.
  return statistics + (trains ? 4 : 2) * plan.inputs;
}

GroupNormStage::GroupNormStage(const StagePlan& plan, const StageOptions& options, Backend& backend)
    : image_(plan.map.from),
      of_row_(GroupsOfRow(plan)),
      epsilon_(EpsilonOf(plan.settings)),
      turns_(Turns(plan)),
      batch_max_(options.batch_max),
      parameters_(options.parameters),
      backend_(backend) {}

absl::StatusOr<std::unique_ptr<Stage>> GroupNormStage::Create(const StagePlan& plan,
                                                              const StageOptions& options,
                                                              Backend& backend) {
  auto stage = std::unique_ptr<GroupNormStage>(new GroupNormStage(plan, options, backend));
  TESSERA_ASSIGN_OR_RETURN(
      stage->kept_,
      Buffer<float>::Create(backend.memory(), KeptFloats(plan, options.batch_max, options.trains)));
  // One allocation, cut into parts in this order: KeptFloats counts them together.
  float* at = stage->kept_.data();
  const auto take = [&](int64_t floats) {
    float* const taken = at;
    at += floats;
    return taken;
  };
  const int64_t groups = options.batch_max * stage->of_row_.rows * stage->of_row_.groups;
  stage->mean_ = take(groups);
  stage->inverse_sigma_ = take(groups);
  if (!stage->turns_) return stage;
  stage->scale_ = take(plan.inputs);
  stage->shift_ = take(plan.inputs);
  if (options.trains) {
    stage->turned_gradients_.weight = take(plan.inputs);
    stage->turned_gradients_.bias = take(plan.inputs);
  }
  return stage;
}

GroupsShape GroupNormStage::Shape(int64_t rows) const {
  GroupsShape shape = of_row_;
  shape.rows *= rows;
  return shape;
}

void GroupNormStage::Turn(const float* parameter, float* values) const {
  backend_.vector().Transpose(1, {image_.channels, image_.positions()}, parameter, values);
}

void GroupNormStage::TurnBack(const float* values, float* parameter) const {
  backend_.vector().Transpose(1, {image_.positions(), image_.channels}, values, parameter);
}

void GroupNormStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  TESSERA_CHECK(rows <= batch_max_);
  GroupNormKernel::Affine affine{parameters_.weight, parameters_.bias};
  if (turns_) {
    // Anew in each step, as an update may have moved the parameters.
    Turn(parameters_.weight, scale_);
    Turn(parameters_.bias, shift_);
    affine = {scale_, shift_};
  }
  backend_.group_norm().Forward(Shape(rows), epsilon_, x[0], affine, mean_, inverse_sigma_, y);
}

void GroupNormStage::Backward(int64_t rows, const StageInputs& x, const float*, const float* dy,
                              const StageGradients& to, const InputGradients& dx) {
  const float* const scale = turns_ ? scale_ : parameters_.weight;
  const GroupNormKernel::BackwardInput in{x[0], mean_, inverse_sigma_, scale, dy};
  if (!turns_) {
    backend_.group_norm().Backward(Shape(rows), in, to.mode, to.weight, to.bias, dx[0]);
    return;
  }
  // What is there before is added to, in the order of the values.
  if (to.mode == WriteMode::kAdd) {
    Turn(to.weight, turned_gradients_.weight);
    Turn(to.bias, turned_gradients_.bias);
  }
  backend_.group_norm().Backward(Shape(rows), in, to.mode, turned_gradients_.weight,
                                 turned_gradients_.bias, dx[0]);
  TurnBack(turned_gradients_.weight, to.weight);
  TurnBack(turned_gradients_.bias, to.bias);
}

// The statistics are the example's own, so that training and evaluation compute the same.
void GroupNormStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  Forward(rows, x, y);
}

ResponseNormStage::ResponseNormStage(const StagePlan& plan, const StageOptions&, Backend& backend)
    : image_(plan.map.from),
      window_(WindowOf(plan.settings.local_response_norm())),
      backend_(backend) {}

void ResponseNormStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.response_norm().Forward(Shape(rows), window_, x[0], y);
}

void ResponseNormStage::Backward(int64_t rows, const StageInputs& x, const float*, const float* dy,
                                 const StageGradients&, const InputGradients& dx) {
  if (dx[0] != nullptr) backend_.response_norm().Backward(Shape(rows), window_, x[0], dy, dx[0]);
}

void ResponseNormStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  Forward(rows, x, y);
}

}  // namespace tessera
