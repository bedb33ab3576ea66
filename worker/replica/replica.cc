#include "worker/replica/replica.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/rule/optimizer.h"

namespace tessera {
namespace {

// Evaluation goes through the rows in batches of at least this many: it has no minibatch to
// respect.
constexpr int64_t kEvaluationBatchMin = 128;

int64_t BatchMax(const v1::Job& job) {
  return std::max(job.train().batch_size(), kEvaluationBatchMin);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(const v1::Job& job, const Recipe& recipe,
                                                         Rank rank, Backend* backend) {
  std::unique_ptr<Replica> replica(new Replica(job, recipe, rank, backend));
  Network::Options options;
  options.batch_max = BatchMax(job);
  TESSERA_ASSIGN_OR_RETURN(options.precision, PrecisionOf(job.train().precision()));
  TESSERA_ASSIGN_OR_RETURN(replica->network_, Network::Create(job.model(), options, *backend));
  Network& network = *replica->network_;
  const int count = static_cast<int>(network.shape().parameters.size());
  if (recipe.payload == PayloadKind::kGradient) {
    TESSERA_CHECK(recipe.averaged_states.empty());
    for (int i = 0; i < count; ++i) {
      replica->values_.push_back(network.parameter(i));
      replica->update_.push_back(network.gradient(i));
    }
    return replica;
  }
  TESSERA_CHECK(recipe.averaged_states.empty() ||
                recipe.averaged_states == StateNames(job.train().optimizer()));
  TESSERA_RETURN_IF_ERROR(replica->AddLocalOptimizer());
  return replica;
}

absl::Status Replica::AddLocalOptimizer() {
  TESSERA_ASSIGN_OR_RETURN(optimizer_,
                           LocalOptimizer::Create(job_.train().optimizer(), *network_, backend_));
  exchanged_.push_back(network_->parameters());
  if (averages_states_) {
    for (const absl::Span<float> state : optimizer_->states()) exchanged_.push_back(state);
  }
  const NetworkPlan& plan = network_->plan();
  const int64_t floats = static_cast<int64_t>(exchanged_.size()) * plan.parameter_floats;
  TESSERA_ASSIGN_OR_RETURN(pulled_, Buffer<float>::Create(backend_.memory(), floats));
  for (size_t a = 0; a < exchanged_.size(); ++a) {
    const float* const pulled = pulled_.data() + a * plan.parameter_floats;
    for (size_t i = 0; i < plan.shape.parameters.size(); ++i) {
      const int64_t offset = plan.parameter_offsets[i];
      const int64_t size = plan.shape.parameters[i].size();
      values_.push_back(exchanged_[a].subspan(offset, size));
      update_.push_back(absl::MakeConstSpan(pulled + offset, size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Replica::MemoryNeeded(const v1::Job& job, const Recipe& recipe,
                                              int64_t calibration_rows) {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  const NetworkMemory network =
      tessera::MemoryNeeded(plan, BatchMax(job), precision, calibration_rows);
  const int64_t row_bytes = (plan.shape.inputs() + plan.shape.outputs() + 1) * sizeof(float);
  int64_t bytes = network.held_bytes + network.calibration_bytes +
                  std::max(BatchMax(job), calibration_rows) * row_bytes;
  if (recipe.payload != PayloadKind::kGradient) {
    const int64_t arrays = 1 + static_cast<int64_t>(recipe.averaged_states.size());
    bytes += arrays * plan.parameter_floats * static_cast<int64_t>(sizeof(float)) +
             LocalOptimizer::MemoryNeeded(job.train().optimizer(), plan);
  }
  return bytes;
}

Batch Replica::Fill(const Dataset& data, absl::Span<const uint32_t> rows) {
  const size_t count = rows.size();
  if (inputs_.size() < count * data.inputs()) inputs_.resize(count * data.inputs());
  Batch batch;
  batch.rows = count;
  batch.inputs = inputs_.data();
  BatchView view;
  view.features = inputs_.data();
  if (data.has_classes()) {
    if (labels_.size() < count) labels_.resize(count);
    view.classes = labels_.data();
    batch.labels = labels_.data();
  } else {
    if (targets_.size() < count * data.outputs()) targets_.resize(count * data.outputs());
    view.targets = targets_.data();
    batch.targets = targets_.data();
  }
  data.FillBatch(rows, view);
  return batch;
}

absl::StatusOr<double> Replica::Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                      const TrainPoint& point) {
  const Batch batch = Fill(data, rows);
  TESSERA_ASSIGN_OR_RETURN(const LossAndCount result,
                           network_->TrainStep(batch, {job_.seed(), point.step, rank_.value()}));
  if (optimizer_ == nullptr) return result.loss;
  ++local_steps_;
  Update update;
  update.number = averages_states_ ? point.step + 1 : local_steps_;
  update.rate = point.rate;
  TESSERA_RETURN_IF_ERROR(optimizer_->Step(update));
  return result.loss;
}

absl::Status Replica::FormUpdate() {
  float* pulled = pulled_.data();
  for (const absl::Span<float> now : exchanged_) {
    backend_.vector().Subtract(now.size(), now.data(), pulled, pulled);
    pulled += now.size();
  }
  return backend_.Finish();
}

absl::Status Replica::AdoptValues() {
  float* pulled = pulled_.data();
  for (const absl::Span<float> now : exchanged_) {
    backend_.memory().CopyIn(now.data(), now.size() * sizeof(float), pulled);
    pulled += now.size();
  }
  return backend_.Finish();
}

absl::StatusOr<std::vector<float>> Replica::Calibrate(const Dataset& data,
                                                      absl::Span<const uint32_t> rows) {
  const Batch batch = Fill(data, rows);
  return network_->Calibrate(absl::MakeConstSpan(&batch, 1));
}

absl::StatusOr<Scores> Replica::Score(const Dataset& data, absl::Span<const uint32_t> rows,
                                      absl::Span<const float> constants) {
  Scores sums;
  const size_t batch_max = BatchMax(job_);
  for (size_t begin = 0; begin < rows.size(); begin += batch_max) {
    const Batch batch = Fill(data, rows.subspan(begin, batch_max));
    TESSERA_ASSIGN_OR_RETURN(const Scores scores, network_->Score(batch, constants));
    sums.loss_sum += scores.loss_sum;
    sums.correct += scores.correct;
    sums.rows += scores.rows;
    for (int i = 0; i < 3; ++i) sums.precision_hits[i] += scores.precision_hits[i];
  }
  return sums;
}

}  // namespace tessera
