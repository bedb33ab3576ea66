#include "worker/replica/replica.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rule/optimizer.h"

namespace tessera {

bool StepsColumns(const v1::Job& job, const Recipe& recipe, const InputRows& input) {
  return input.sparse && recipe.payload != PayloadKind::kGradient &&
         LocalOptimizer::LeavesZeroGradients(job.train().optimizer());
}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(const v1::Job& job, const Recipe& recipe,
                                                         Rank rank, Backend* backend,
                                                         const InputRows& input, Exchange first) {
  if (recipe.subnets) {
    return absl::UnimplementedError(
        "replica: holds the whole model, but the method trains subnets");
  }
  std::unique_ptr<Replica> replica(new Replica(job, recipe, rank, backend, input));
  Network::Options options;
  options.sparse_input = input.sparse;
  options.steps_first_weight = StepsColumns(job, recipe, input);
  options.batch_max = BatchRowsMax(job);
  options.fetches_gradients = recipe.payload == PayloadKind::kGradient && !replica->sides_.update;
  TESSERA_ASSIGN_OR_RETURN(options.precision, PrecisionOf(job.train().precision()));
  TESSERA_ASSIGN_OR_RETURN(replica->network_, Network::Create(job.model(), options, *backend));
  Network& network = *replica->network_;
  TESSERA_ASSIGN_OR_RETURN(const ModelShape exchanged, ExchangedShape(job.model(), recipe));
  replica->keys_ = DenseKeys(
      exchanged, ShardCount(recipe.placement, static_cast<int>(job.cluster().servers().count())));
  if (recipe.core) {
    replica->core_ = std::make_unique<ExchangeKeys>(
        ExchangeKeys::Options{exchanged, static_cast<int>(job.cluster().servers().count()),
                              *recipe.core, job.seed(), rank, first, recipe.lockstep});
  }
  const int count = static_cast<int>(network.shape().parameters.size());
  if (recipe.payload == PayloadKind::kGradient) {
    TESSERA_CHECK(recipe.averaged_states.empty());
    for (int i = 0; i < count; ++i) {
      replica->shown_.push_back(network.parameter(i));
      replica->values_.push_back(replica->sides_.values ? network.device_parameter(i)
                                                        : network.parameter(i));
      replica->update_.push_back(replica->sides_.update ? network.device_gradient(i)
                                                        : network.gradient(i));
    }
    return replica;
  }
  TESSERA_CHECK(recipe.averaged_states.empty() ||
                recipe.averaged_states == StateNames(job.train().optimizer()));
  TESSERA_RETURN_IF_ERROR(replica->AddLocalOptimizer());
  return replica;
}

absl::Status Replica::AddLocalOptimizer() {
  const v1::Checkpoint& checkpoint = job_.checkpoint();
  const bool shows_states =
      averages_states_ || !checkpoint.directory().empty() || !checkpoint.restore().empty();
  TESSERA_ASSIGN_OR_RETURN(optimizer_, LocalOptimizer::Create(job_.train().optimizer(), *network_,
                                                              backend_, shows_states));
  std::vector<absl::Span<float>> shown = {network_->parameters()};
  exchanged_.push_back(network_->device_parameters());
  if (averages_states_) {
    for (float* const state : optimizer_->device_states()) exchanged_.push_back(state);
    for (const absl::Span<float> state : optimizer_->states()) shown.push_back(state);
  }
  const NetworkPlan& plan = network_->plan();
  const int64_t floats = static_cast<int64_t>(exchanged_.size()) * plan.parameter_floats;
  TESSERA_ASSIGN_OR_RETURN(pulled_, Buffer<float>::Create(backend_.memory(), floats));
  if (!sides_.update) {
    TESSERA_ASSIGN_OR_RETURN(pulled_view_,
                             HostView<float>::Create(backend_.memory(), pulled_.data(), floats));
  }
  for (size_t a = 0; a < exchanged_.size(); ++a) {
    const float* const pulled =
        (sides_.update ? pulled_.data() : pulled_view_.data()) + a * plan.parameter_floats;
    for (size_t i = 0; i < plan.shape.parameters.size(); ++i) {
      const int64_t offset = plan.parameter_offsets[i];
      const int64_t size = plan.shape.parameters[i].size();
      shown_.push_back(shown[a].subspan(offset, size));
      values_.push_back(sides_.values ? absl::MakeSpan(exchanged_[a] + offset, size)
                                      : shown_.back());
      update_.push_back(absl::MakeConstSpan(pulled + offset, size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Replica::MemoryNeeded(const v1::Job& job, const Recipe& recipe,
                                              int64_t calibration_rows, const InputRows& input) {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  const NetworkMemory network =
      tessera::MemoryNeeded(plan, BatchRowsMax(job), precision, calibration_rows, input.sparse,
                            StepsColumns(job, recipe, input));
  const int64_t calibrated = plan.constants > 0 ? calibration_rows : 0;
  int64_t bytes = network.held_bytes + network.calibration_bytes +
                  BatchRows::MemoryNeeded(job, plan.shape, input, calibrated);
  if (recipe.payload != PayloadKind::kGradient) {
    const int64_t arrays = 1 + static_cast<int64_t>(recipe.averaged_states.size());
    bytes += arrays * plan.parameter_floats * static_cast<int64_t>(sizeof(float)) +
             LocalOptimizer::MemoryNeeded(job.train().optimizer(), plan);
  }
  if (recipe.core) {
    // Entries on their way, each direction, and bits: core, explorer, both, as they are drawn.
    bytes += static_cast<int64_t>(2 * recipe.core->alpha * plan.parameter_floats * sizeof(float)) +
             plan.parameter_floats;
  }
  return bytes;
}

absl::StatusOr<double> Replica::Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                      const TrainPoint& point) {
  Update update;
  if (optimizer_ != nullptr) ++local_steps_;
  update.number = averages_states_ ? point.step + 1 : local_steps_;
  update.rate = point.rate;
  GradientWork* work = nullptr;
  if (optimizer_ != nullptr && network_->takes_work()) {
    work = point.last ? static_cast<GradientWork*>(&last_step_) : optimizer_.get();
  }
  formed_ = work == &last_step_;
  return steps_.Run(network_.get(), optimizer_.get(), data, rows, point,
                    {job_.seed(), point.step, rank_.value()}, update, work);
}

void Replica::FormDelta(int i) {
  const NetworkPlan& plan = network_->plan();
  const int64_t size = plan.shape.parameters[i].size();
  for (size_t a = 0; a < exchanged_.size(); ++a) {
    const int64_t offset = plan.parameter_offsets[i];
    const int64_t place = static_cast<int64_t>(a) * plan.parameter_floats + offset;
    float* const pulled = pulled_.data() + place;
    backend_.vector().Subtract(size, exchanged_[a] + offset, pulled, pulled);
    if (!sides_.update) pulled_view_.Fetch(place, size);
  }
}

absl::Status Replica::FormUpdate() {
  if (optimizer_ != nullptr && !formed_) {
    for (size_t i = 0; i < network_->shape().parameters.size(); ++i) FormDelta(static_cast<int>(i));
  }
  formed_ = false;
  // What the device itself sends on need not be waited for.
  return sides_.update ? backend_.TakeFailure() : backend_.Finish();
}

void Replica::SendValue(size_t i) {
  const size_t count = network_->shape().parameters.size();
  const int parameter = static_cast<int>(i % count);
  if (i < count) {
    network_->SendParameter(parameter);
  } else {
    optimizer_->SendState(static_cast<int>(i / count) - 1, parameter);
  }
}

void Replica::SendValues() {
  for (size_t i = 0; i < shown_.size(); ++i) SendValue(i);
}

absl::Status Replica::AdoptValues() {
  if (!sides_.values) {
    for (size_t i = sent_; i < shown_.size(); ++i) SendValue(i);
  }
  sent_ = 0;
  KeepPulled();
  // What comes next is queued behind it.
  return backend_.TakeFailure();
}

void Replica::KeepPulled() {
  const int64_t floats = network_->plan().parameter_floats;
  float* pulled = pulled_.data();
  for (const float* const now : exchanged_) {
    backend_.memory().Copy(now, floats * static_cast<int64_t>(sizeof(float)), pulled);
    pulled += floats;
  }
}

absl::Status Replica::AdoptPrivateState() {
  if (optimizer_ == nullptr || averages_states_) return absl::OkStatus();
  optimizer_->SendStates();
  if (core_ != nullptr) {
    SendValues();
    KeepPulled();
  }
  return backend_.Finish();
}

absl::StatusOr<PrivateState> Replica::private_state() {
  PrivateState state;
  // Averaged states are the servers'.
  if (optimizer_ == nullptr || averages_states_) return state;
  optimizer_->FetchStates();
  if (core_ != nullptr) network_->FetchParameters();
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  state.local_steps = &local_steps_;
  const NetworkPlan& plan = network_->plan();
  const std::vector<absl::Span<float>> arrays = optimizer_->states();
  for (size_t s = 0; s < arrays.size(); ++s) {
    for (size_t p = 0; p < plan.shape.parameters.size(); ++p) {
      const ParameterSpec& spec = plan.shape.parameters[p];
      state.arrays.push_back({absl::StrCat("state.", s, ".", spec.name),
                              arrays[s].subspan(plan.parameter_offsets[p], spec.size())});
    }
  }
  // What exchanges have not moved is this replica's own.
  for (size_t p = 0; core_ != nullptr && p < plan.shape.parameters.size(); ++p) {
    state.arrays.push_back({absl::StrCat("replica.", plan.shape.parameters[p].name), shown_[p]});
  }
  return state;
}

absl::Status Replica::Recut(const SubnetPlace&) {
  TESSERA_CHECK(false);  // All entries are nobody's part.
  return absl::OkStatus();
}

absl::StatusOr<ExchangeResult> Replica::BeginEvaluation(ParameterClient* servers, Exchange after,
                                                        RestWord word) {
  // Values that are on their way to the device are overwritten here.
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read, servers->Read(after, word, shown_));
  SendValues();
  // What was trained here and not sent is still in pulled_ where exchanges move a core, as nothing was
  // trained since.
  if (core_ == nullptr) KeepPulled();
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return read;
}

absl::StatusOr<bool> Replica::EndEvaluation() {
  if (core_ == nullptr) return false;
  const int64_t floats = network_->plan().parameter_floats;
  const float* pulled = pulled_.data();
  for (float* const now : exchanged_) {
    backend_.memory().Copy(pulled, floats * static_cast<int64_t>(sizeof(float)), now);
    pulled += floats;
  }
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return false;
}

absl::Status Replica::BeginTail() {
  TESSERA_CHECK(false);  // Exchanges are of the whole model already.
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> Replica::Calibrate(const Dataset& data,
                                                      absl::Span<const uint32_t> rows) {
  return rows_.Calibrate(network_.get(), data, rows);
}

absl::StatusOr<Scores> Replica::Score(const Dataset& data, absl::Span<const uint32_t> rows,
                                      absl::Span<const float> constants) {
  return rows_.Score(network_.get(), data, rows, constants);
}

}  // namespace tessera
