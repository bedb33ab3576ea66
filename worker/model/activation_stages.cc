#include "worker/model/activation_stages.h"

#include <type_traits>
#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

// A kind of layer that computes a function of each value.
struct FunctionLayer {
  v1::Layer::KindCase kind;
  // Which function, by the layer's keys.
  ActivationFunction (*of)(const v1::Layer& layer);
  // y has the sign of x.
  bool keeps_signs = false;
  // The slope depends on the sign of y alone.
  bool reads_signs_of_y = false;
};

template <Activation kActivation>
ActivationFunction Plain(const v1::Layer&) {
  return {kActivation};
}

ActivationFunction GeluOf(const v1::Layer& layer) {
  return {layer.gelu().approximate() == "tanh" ? Activation::kGeluTanh : Activation::kGelu};
}

ActivationFunction LeakyReluOf(const v1::Layer& layer) {
  return {Activation::kLeakyRelu, static_cast<float>(layer.leaky_relu().slope())};
}

// tanh keeps signs, but its slope depends on all of y; a leaky relu's is as a relu's.
constexpr FunctionLayer kFunctionLayers[] = {
    {v1::Layer::kGelu, GeluOf},
    {v1::Layer::kTanh, Plain<Activation::kTanh>, /*keeps_signs=*/true},
    {v1::Layer::kSigmoid, Plain<Activation::kSigmoid>},
    {v1::Layer::kSilu, Plain<Activation::kSilu>},
    {v1::Layer::kLeakyRelu, LeakyReluOf, /*keeps_signs=*/true, /*reads_signs_of_y=*/true},
};

// The function that a layer of one of these kinds computes.
ActivationFunction FunctionOf(const v1::Layer& layer) {
  for (const FunctionLayer& each : kFunctionLayers) {
    if (each.kind == layer.kind_case()) return each.of(layer);
  }
  TESSERA_CHECK(false);
  return {};
}

// Functions whose slope follows from their own value (kernels/activation_function.h), as tanh' = 1 - y^2, need not keep
// what they read.
bool HasSlopeOfY(const ActivationFunction& function) {
  bool of_y = false;
  WithFunction(function, [&](const auto& f) { of_y = std::decay_t<decltype(f)>::kSlopeOfY; });
  return of_y;
}

// Both write over what they read, forward and backward.
template <typename T>
StageKind InPlace(v1::Layer::KindCase layer) {
  StageKind kind{layer, MakeStage<T>};
  kind.forward_in_place = true;
  kind.backward_in_place = true;
  kind.backward_reads_x = false;
  kind.keeps_signs = true;
  return kind;
}

}  // namespace

StageKind ReluStageKind() {
  StageKind kind = InPlace<ReluStage>(v1::Layer::kRelu);
  kind.reads_signs_of_y = true;
  return kind;
}

StageKind DropoutStageKind() {
  StageKind kind = InPlace<DropoutStage>(v1::Layer::kDropout);
  kind.draws = true;
  kind.backward_reads_y = false;
  return kind;
}

std::vector<StageKind> FunctionStageKinds() {
  std::vector<StageKind> kinds;
  for (const FunctionLayer& each : kFunctionLayers) {
    // The message is empty: what its function's slope is made of does not depend on the values of its keys.
    v1::Layer some;
    const auto* const field = v1::Layer::descriptor()->FindFieldByNumber(each.kind);
    some.GetReflection()->MutableMessage(&some, field);
    const bool of_y = HasSlopeOfY(each.of(some));
    StageKind kind{each.kind, MakeStage<FunctionStage>};
    kind.forward_in_place = of_y;
    kind.backward_in_place = true;
    kind.backward_reads_x = !of_y;
    kind.backward_reads_y = of_y;
    kind.reads_signs_of_y = each.reads_signs_of_y;
    kind.keeps_signs = each.keeps_signs;
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

void ReluStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.activation().Relu(rows * inputs_, x[0], y);
}

void ReluStage::Backward(int64_t rows, const StageInputs&, const float* y, const float* dy,
                         const StageGradients&, const InputGradients& dx) {
  // The gradient is asked of y: a stage behind may have written over y, but left it positive where it was.
  if (dx[0] != nullptr) backend_.activation().ReluBackward(rows * inputs_, y, dy, dx[0]);
}

void ReluStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  backend_.activation().Relu(rows * inputs_, x[0], y);
}

void ReluStage::EvaluateColumns(const UnitColumns& columns, const float* x, const float*,
                                float* y) {
  backend_.activation().Relu(columns.matrix.size(), x, y);
}

FunctionStage::FunctionStage(const StagePlan& plan, const StageOptions&, Backend& backend)
    : inputs_(plan.inputs), function_(FunctionOf(plan.settings)), backend_(backend) {}

void FunctionStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.activation().Apply(function_, rows * inputs_, x[0], y);
}

void FunctionStage::Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                             const StageGradients&, const InputGradients& dx) {
  if (dx[0] == nullptr) return;
  const float* const of = HasSlopeOfY(function_) ? y : x[0];
  backend_.activation().ApplyBackward(function_, rows * inputs_, of, dy, dx[0]);
}

void FunctionStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  backend_.activation().Apply(function_, rows * inputs_, x[0], y);
}

void FunctionStage::EvaluateColumns(const UnitColumns& columns, const float* x, const float*,
                                    float* y) {
  backend_.activation().Apply(function_, columns.matrix.size(), x, y);
}

// Dropping is linear and the key names the step: the backward pass drops the same entries of the gradient, and no mask
// is kept in between.
void DropoutStage::Drop(int64_t rows, const float* from, float* to) {
  backend_.activation().Dropout({rows, inputs_}, key_, layer_, probability_, from, to);
}

void DropoutStage::Forward(int64_t rows, const StageInputs& x, float* y) { Drop(rows, x[0], y); }

void DropoutStage::Backward(int64_t rows, const StageInputs&, const float*, const float* dy,
                            const StageGradients&, const InputGradients& dx) {
  if (dx[0] != nullptr) Drop(rows, dy, dx[0]);
}

void DropoutStage::Evaluate(int64_t, const StageInputs&, const float*, float*) {
  // A network leaves out in evaluation what is off there (StagePlan::is_off_in_evaluation).
  TESSERA_CHECK(false);
}

}  // namespace tessera
