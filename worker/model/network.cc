#include "worker/model/network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "worker/model/model_loss.h"

namespace tessera {
namespace {

// Where batches and their sums lie: the places of BatchStaging, each for the first, the inner and the last
// pieces of minibatches of two sizes, or batches that add up, with either place of sums; and first ones may
// round weights.
constexpr size_t kRepeatedMax = 48;

static_assert(kStepsBegunMax <= Backend::kMoments);

// The kernels for one are those for the other.
bool SameKernels(const Batch& a, const Batch& b) {
  return a.rows == b.rows && a.inputs == b.inputs && a.labels == b.labels &&
         a.targets == b.targets && a.whole_rows() == b.whole_rows() &&
         a.is_first() == b.is_first() && a.is_last() == b.is_last() && a.adds == b.adds &&
         a.more == b.more;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const v1::Model& model,
                                                         const Options& options, Backend& backend) {
  if (options.batch_max < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("network: batch_max is ", options.batch_max, ", want at least 1"));
  }
  TESSERA_RETURN_IF_ERROR(CheckLoss(model));
  TESSERA_ASSIGN_OR_RETURN(NetworkPlan plan, PlanOf(model));
  if (options.sparse_input && !ReadsSparse(model)) {
    return absl::InvalidArgumentError(
        "model.layers: the first is no linear layer, want one: no other reads sparse rows");
  }
  if (options.layers.has_value()) {
    TESSERA_ASSIGN_OR_RETURN(plan, HalfOf(plan, *options.layers));
    const bool is_half = plan.part != ModelPart::kWhole;
    if (is_half && (options.sparse_input || options.evaluates_only)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "network: a half of a model has ",
          options.sparse_input ? "sparse_input, want dense" : "evaluates_only, want it to train"));
    }
  }
  auto network = std::unique_ptr<Network>(new Network(model, options, std::move(plan), backend));
  TESSERA_RETURN_IF_ERROR(network->Allocate());
  return network;
}

Network::Network(const v1::Model& model, const Options& options, NetworkPlan plan, Backend& backend)
    : model_(model),
      options_(options),
      plan_(std::move(plan)),
      backend_(backend),
      staging_(&backend.memory()) {}

absl::Status Network::Allocate() {
  Memory& memory = backend_.memory();
  TESSERA_ASSIGN_OR_RETURN(parameters_, Buffer<float>::Create(memory, plan_.parameter_floats));
  TESSERA_ASSIGN_OR_RETURN(parameters_view_, HostView<float>::Create(memory, parameters_.data(),
                                                                     plan_.parameter_floats));
  const bool trains = !options_.evaluates_only;
  if (trains) {
    gradients_begin_ = GradientsBegin(plan_, options_.steps_first_weight);
    TESSERA_ASSIGN_OR_RETURN(
        gradients_, Buffer<float>::Create(memory, plan_.parameter_floats - gradients_begin_));
    if (options_.fetches_gradients || memory.host_addressable()) {
      TESSERA_ASSIGN_OR_RETURN(
          gradients_view_, HostView<float>::Create(memory, gradients_.data(), gradients_.size()));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(constants_, Buffer<float>::Create(memory, plan_.constants));
  TESSERA_ASSIGN_OR_RETURN(sums_, Buffer<LossSums>::Create(memory, trains ? kStepsBegunMax : 1));
  TESSERA_ASSIGN_OR_RETURN(sums_view_,
                           HostView<LossSums>::Create(memory, sums_.data(), sums_.size()));
  for (Buffer<float>& flow : flow_) {
    TESSERA_ASSIGN_OR_RETURN(flow,
                             Buffer<float>::Create(memory, options_.batch_max * plan_.width_max));
  }
  if (trains) {
    TESSERA_ASSIGN_OR_RETURN(numbers_, Buffer<StepNumbers>::Create(memory, 1));
  }
  if (trains && options_.precision == Precision::kBf16) {
    int64_t outputs_max = 0;
    for (const StagePlan& stage : plan_.stages) {
      if (stage.kind->is_product) outputs_max = std::max(outputs_max, stage.outputs);
    }
    TESSERA_ASSIGN_OR_RETURN(dy_bf16_,
                             Buffer<Bf16>::Create(memory, options_.batch_max * outputs_max));
  }
  // Sparse rows lie elsewhere each time.
  repeats_ = trains && wants_next();
  rounded_.resize(shape().parameters.size(), nullptr);
  values_.push_back(nullptr);
  for (const StagePlan& stage : plan_.stages) {
    draws_ = draws_ || (trains && stage.kind->draws);
    std::unique_ptr<Stage> made;
    if (stages_.empty() && options_.sparse_input) {
      sparse_first_ = std::make_unique<SparseLinearStage>(stage, ParametersOf(stage), backend_);
    } else {
      StageOptions made_for{options_.precision, options_.batch_max, trains, ParametersOf(stage),
                            dy_bf16_.data()};
      if (trains) made_for.dropout = &numbers_.data()->dropout;
      TESSERA_ASSIGN_OR_RETURN(made, stage.kind->make(stage, made_for, backend_));
    }
    if (made != nullptr && stage.weight >= 0) rounded_[stage.weight] = made->rounded_weight();
    const bool in_place = !stages_.empty() && stage.kind->forward_in_place;
    stages_.push_back(std::move(made));
    outputs_.emplace_back();
    if (trains && !in_place) {
      TESSERA_ASSIGN_OR_RETURN(outputs_.back(),
                               Buffer<float>::Create(memory, options_.batch_max * stage.outputs));
    }
    values_.push_back(in_place ? values_.back() : outputs_.back().data());
  }
  if (options_.steps_first_weight && options_.minibatch_max > options_.batch_max) {
    const int64_t floats = options_.minibatch_max * plan_.stages[0].outputs;
    TESSERA_ASSIGN_OR_RETURN(first_dy_, Buffer<float>::Create(memory, floats));
  }
  return AllocateHalf();
}

StageParameters Network::ParametersOf(const StagePlan& plan) const {
  StageParameters parameters;
  if (plan.weight >= 0) {
    parameters.weight = parameters_.data() + plan_.parameter_offsets[plan.weight];
  }
  if (plan.bias >= 0) parameters.bias = parameters_.data() + plan_.parameter_offsets[plan.bias];
  return parameters;
}

StageGradients Network::GradientsOf(const StagePlan& plan, const Batch& batch) const {
  StageGradients to;
  to.mode = batch.is_first() ? WriteMode::kOverwrite : WriteMode::kAdd;
  const auto place = [&](int parameter) -> float* {
    if (parameter < 0) return nullptr;
    return batch.adds ? AddedAt(plan, parameter) : GradientAt(parameter);
  };
  to.weight = place(plan.weight);
  to.bias = place(plan.bias);
  return to;
}

float* Network::GradientAt(int i) const {
  const int64_t offset = plan_.parameter_offsets[i] - gradients_begin_;
  return offset < 0 ? nullptr : gradients_.data() + offset;
}

absl::Span<float> Network::parameter(int i) {
  return {parameters_view_.data() + plan_.parameter_offsets[i],
          static_cast<size_t>(shape().parameters[i].size())};
}

absl::Span<const float> Network::gradient(int i) const {
  const int64_t offset = plan_.parameter_offsets[i] - gradients_begin_;
  if (offset < 0 || gradients_view_.size() == 0) return {};
  return {gradients_view_.data() + offset, static_cast<size_t>(shape().parameters[i].size())};
}

absl::Span<float> Network::device_parameter(int i) const {
  return {parameters_.data() + plan_.parameter_offsets[i],
          static_cast<size_t>(shape().parameters[i].size())};
}

absl::Span<const float> Network::device_gradient(int i) const {
  return {GradientAt(i), static_cast<size_t>(shape().parameters[i].size())};
}

absl::Span<float> Network::parameters() {
  return {parameters_view_.data(), static_cast<size_t>(parameters_.size())};
}

absl::Span<const float> Network::gradients() const {
  return {gradients_view_.data(), static_cast<size_t>(gradients_view_.size())};
}

void Network::SetInitialValues(uint64_t seed) {
  for (size_t i = 0; i < shape().parameters.size(); ++i) {
    const ParameterSpec& spec = shape().parameters[i];
    FillInitialRows(spec, plan_.parameter_begin + static_cast<int>(i), seed, 0, spec.rows,
                    parameter(static_cast<int>(i)).data());
  }
  SendParameters();
}

absl::Status Network::Check(const Batch& batch) const {
  if (batch.rows < 1 || batch.rows > options_.batch_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch: rows is ", batch.rows, ", want between 1 and ", options_.batch_max));
  }
  TESSERA_RETURN_IF_ERROR(CheckInputs(batch));
  TESSERA_RETURN_IF_ERROR(CheckPart(batch));
  if (is_front()) return absl::OkStatus();
  const bool sigmoid = model_.loss() == kSigmoid;
  if (batch.labels == nullptr && (batch.targets == nullptr || !sigmoid)) {
    return absl::InvalidArgumentError(absl::StrCat("batch: labels is null, want labels",
                                                   sigmoid ? " or targets" : "", " for ",
                                                   model_.loss()));
  }
  if (batch.targets != nullptr && sigmoid) return absl::OkStatus();
  // A single sigmoid has the labels 0 and 1.
  const int64_t labels = sigmoid && shape().outputs() == 1 ? 2 : shape().outputs();
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (batch.labels[row] < 0 || batch.labels[row] >= labels) {
      return absl::InvalidArgumentError(absl::StrCat("batch: label of row ", row, " is ",
                                                     batch.labels[row], ", want between 0 and ",
                                                     labels - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status Network::CheckInputs(const Batch& batch) const {
  if (!options_.sparse_input) {
    if (batch.inputs != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError("batch: inputs is null, want values");
  }
  if (batch.sparse.begin == nullptr) {
    return absl::InvalidArgumentError("batch: there are no sparse rows, want some");
  }
  for (int64_t e = batch.sparse.begin[0]; e < batch.sparse.begin[batch.rows]; ++e) {
    const int32_t column = batch.sparse.column[e];
    if (column >= 0 && column < shape().inputs()) continue;
    return absl::InvalidArgumentError(absl::StrCat("batch: column of entry ", e, " is ", column,
                                                   ", want between 0 and ", shape().inputs() - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<LossAndCount> Network::TrainStep(const Batch& batch, const StepKey& key) {
  TESSERA_RETURN_IF_ERROR(BeginStep(batch, key));
  return EndStep();
}

absl::Status Network::BeginStep(const Batch& batch, const StepKey& key, GradientWork* work) {
  TESSERA_CHECK(!options_.evaluates_only);
  TESSERA_RETURN_IF_ERROR(CheckHasLoss());
  TESSERA_ASSIGN_OR_RETURN(const Batch staged, CheckAndStage(batch));
  QueueStep(staged, key, work);
  return absl::OkStatus();
}

absl::StatusOr<Batch> Network::CheckAndStage(const Batch& batch) {
  TESSERA_RETURN_IF_ERROR(Check(batch));
  DropNext();
  Batch read = batch;
  if (is_front()) {
    read.labels = nullptr;
    read.targets = nullptr;
  }
  return staging_.Stage(read, shape().inputs(), shape().outputs());
}

bool Network::wants_next() const {
  return !options_.sparse_input && !backend_.memory().host_addressable();
}

void Network::DropNext() {
  // Its place is the next one's, as those of the batches before are still read.
  if (holds_next()) staging_.TakeBack();
  next_ = Batch();
}

absl::Status Network::SendNext(const Batch& batch) {
  TESSERA_CHECK(wants_next() && !holds_next());
  TESSERA_ASSIGN_OR_RETURN(next_, CheckAndStage(batch));
  return absl::OkStatus();
}

absl::Status Network::BeginStepOnNext(const StepKey& key, GradientWork* work) {
  TESSERA_CHECK(holds_next());
  TESSERA_RETURN_IF_ERROR(CheckHasLoss());
  const Batch staged = std::exchange(next_, Batch());
  QueueStep(staged, key, work);
  return absl::OkStatus();
}

Network::Repeated* Network::RepeatedOn(const StepForm& form) {
  if (!repeats_) return nullptr;
  for (Repeated& each : repeated_) {
    if (each.form.sums_place == form.sums_place && each.form.rounds == form.rounds &&
        SameKernels(each.form.batch, form.batch)) {
      return &each;
    }
  }
  if (repeated_.size() == kRepeatedMax) repeated_.clear();
  repeated_.push_back({form, backend_.MakeSequence(), {}});
  return &repeated_.back();
}

Sequence* Network::BackwardOf(Repeated* repeated, const GradientWork* work) {
  for (auto& [of, sequence] : repeated->backward) {
    if (of == work) return sequence.get();
  }
  repeated->backward.emplace_back(work, backend_.MakeSequence());
  return repeated->backward.back().second.get();
}

void Network::QueueStep(const Batch& staged, const StepKey& key, GradientWork* work) {
  TESSERA_CHECK(begun() < kStepsBegunMax);
  TESSERA_CHECK(work == nullptr || takes_work());
  TESSERA_CHECK(staged.is_first() || staged.first_row == rows_done_);
  rows_done_ = staged.first_row + staged.rows;
  TESSERA_CHECK(rows_done_ <= staged.whole_rows());
  TESSERA_CHECK(!options_.steps_first_weight || staged.rows == staged.whole_rows() ||
                staged.whole_rows() * plan_.stages[0].outputs <= first_dy_.size());
  last_batch_ = Batch();
  TESSERA_CHECK(!left_.has_value());
  if (is_back()) input_gradient_rows_ = staged.rows;
  if (staged.is_first()) sums_place_ = (sums_place_ + 1) % kStepsBegunMax;
  const StepForm form = FormOf(staged, key);
  Repeated* const repeated = RepeatedOn(form);
  const auto forward = [&] { QueueForward(form); };
  if (!staged.ends_gradients()) work = nullptr;
  const auto backward = [&] { Backward(staged, work); };
  if (leaves_first_layer()) left_ = LeftForFinish{staged, work};
  if (repeated != nullptr) {
    repeated->forward->Run(forward);
  } else {
    forward();
  }
  if (staged.is_last()) sums_view_.Fetch(sums_place_, 1);
  begun_.push_back({staged.whole_rows(), staged.is_last(), sums_place_, backend_.Mark()});
  if (repeated != nullptr) {
    BackwardOf(repeated, work)->Run(backward);
  } else {
    backward();
  }
}

Network::StepForm Network::FormOf(const Batch& staged, const StepKey& key) {
  if (draws_) {
    TESSERA_CHECK(key.rank < uint64_t{1} << 16);
    const DropoutKey dropout{key.seed, key.step, key.rank, static_cast<uint64_t>(staged.first_row)};
    backend_.memory().CopyIn(&dropout, sizeof(dropout), &numbers_.data()->dropout);
  }
  // Weights stay what they are from the first piece or batch of an update to its last.
  const bool keeps_rounded =
      std::exchange(keeps_rounded_, false) || !staged.is_first() || staged.adds;
  return {staged, sums_place_, !keeps_rounded};
}

void Network::QueueForward(const StepForm& form) {
  const Batch& staged = form.batch;
  const float* x = staged.inputs;
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (form.rounds && stages_[i] != nullptr) stages_[i]->RoundWeight();
    if (stages_[i] == nullptr) {
      sparse_first_->Forward(staged.rows, staged.sparse, values_[i + 1]);
    } else {
      stages_[i]->Forward(staged.rows, {&x, 1}, values_[i + 1]);
    }
    x = values_[i + 1];
  }
  if (is_front()) return;
  ComputeLoss(model_, staged, shape().outputs(), x, flow_[0].data(), sums_.data() + form.sums_place,
              backend_);
}

absl::StatusOr<LossAndCount> Network::EndStep() {
  TESSERA_ASSIGN_OR_RETURN(const std::optional<LossAndCount> ended, EndPiece());
  TESSERA_CHECK(ended.has_value());
  return *ended;
}

absl::StatusOr<std::optional<LossAndCount>> Network::EndPiece() {
  TESSERA_CHECK(!begun_.empty());
  const Begun first = begun_.front();
  begun_.erase(begun_.begin());
  // Until the loss is known, and the place of the batch before is free; not until the backward pass is done.
  TESSERA_RETURN_IF_ERROR(backend_.Wait(first.known));
  if (!first.is_last) return std::nullopt;
  const LossSums& sums = sums_view_.data()[first.sums_place];
  return LossAndCount{sums.loss / static_cast<double>(first.minibatch_rows), sums.correct,
                      first.minibatch_rows};
}

}  // namespace tessera
