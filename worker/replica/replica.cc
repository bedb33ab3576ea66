#include "worker/replica/replica.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rule/optimizer.h"
#include "worker/model/network_memory.h"

namespace tessera {

namespace {

// Whether checkpoints are kept, or gone on from. Otherwise nobody asks for the state on the host.
bool KeepsState(const v1::Job& job) {
  return !job.checkpoint().directory().empty() || !job.checkpoint().restore().empty();
}

}  // namespace

bool StepsColumns(const v1::Job& job, const Recipe& recipe, const InputRows& input) {
  // A norm is over all gradients.
  return input.sparse && recipe.payload != PayloadKind::kGradient && job.train().clip_norm() == 0 &&
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
  // An optimizer that leaves entries without gradient alone may step in the minibatch's columns only.
  options.sparse_input = input.sparse;
  options.steps_first_weight = StepsColumns(job, recipe, input);
  options.minibatch_max = RowsInPieces(job);
  options.batch_max = BatchRowsMax(job);
  // On a device that codes pushes itself gradients never come to the host.
  options.fetches_gradients = recipe.payload == PayloadKind::kGradient && !replica->sides_.update;
  TESSERA_ASSIGN_OR_RETURN(options.precision, PrecisionOf(job.train().precision()));
  TESSERA_ASSIGN_OR_RETURN(replica->network_, Network::Create(job.model(), options, *backend));
  Network& network = *replica->network_;
  TESSERA_ASSIGN_OR_RETURN(replica->clip_, GradientClip::Create(job.train().clip_norm(), *backend));
  replica->steps_.Clip(replica->clip_.get());
  TESSERA_ASSIGN_OR_RETURN(const ModelShape exchanged, ExchangedShape(job.model(), recipe));
  // The arrays that are exchanged: parameters, and states where they are averaged.
  replica->keys_ = DenseKeys(
      exchanged, ShardCount(recipe.placement, static_cast<int>(job.cluster().servers().count())));
  if (recipe.core) {
    replica->core_ = std::make_unique<ExchangeKeys>(
        ExchangeKeys::Options{exchanged, static_cast<int>(job.cluster().servers().count()),
                              *recipe.core, job.seed(), rank, first, recipe.lockstep});
  }
  if (recipe.fragments) {
    replica->fragments_ = std::make_unique<FragmentKeys>(
        exchanged, static_cast<int>(job.cluster().servers().count()), *recipe.fragments, first);
  }
  const int count = static_cast<int>(network.shape().parameters.size());
  // A method that pushes gradients has no optimizer here: the servers step.
  if (recipe.payload == PayloadKind::kGradient) {
    TESSERA_CHECK(recipe.averaged_states.empty());
    for (int i = 0; i < count; ++i) {
      replica->shown_.push_back(network.arrays().parameter(i));
      replica->values_.push_back(replica->sides_.values ? network.arrays().device_parameter(i)
                                                        : network.arrays().parameter(i));
      replica->bases_[0].update.push_back(replica->sides_.update
                                              ? network.arrays().device_gradient(i)
                                              : network.arrays().gradient(i));
    }
    return replica;
  }
  TESSERA_CHECK(recipe.averaged_states.empty() ||
                recipe.averaged_states == StateNames(job.train().optimizer()));
  TESSERA_RETURN_IF_ERROR(replica->AddLocalOptimizer());
  return replica;
}

absl::Status Replica::AddLocalOptimizer() {
  const bool shows_states = averages_states_ || KeepsState(job_);
  TESSERA_ASSIGN_OR_RETURN(optimizer_, LocalOptimizer::Create(job_.train().optimizer(), *network_,
                                                              backend_, shows_states));
  std::vector<absl::Span<float>> shown = {network_->arrays().parameters()};
  exchanged_.push_back(network_->arrays().device_parameters());
  if (averages_states_) {
    for (float* const state : optimizer_->device_states()) exchanged_.push_back(state);
    for (const absl::Span<float> state : optimizer_->states()) shown.push_back(state);
  }
  // The base is what a delta is formed from, and then the delta: exchanges that overlap have two, one for each in turn.
  TESSERA_ASSIGN_OR_RETURN(bases_[0], MakeBase());
  if (receives_apart_) TESSERA_RETURN_IF_ERROR(AddIncoming());
  // The second base, for the delta that is formed while the first one is on its way.
  if (overlaps_ && fragments_ == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(bases_[1], MakeBase());
  }
  if (overlaps_ && shows_states) TESSERA_RETURN_IF_ERROR(AddKeptStates());
  const NetworkPlan& plan = network_->plan();
  for (size_t a = 0; a < exchanged_.size(); ++a) {
    float* const incoming = sides_.values ? incoming_.data() : incoming_view_.data();
    for (size_t i = 0; i < plan.shape.parameters.size(); ++i) {
      const int64_t offset = plan.parameter_offsets[i];
      const int64_t size = plan.shape.parameters[i].size();
      shown_.push_back(shown[a].subspan(offset, size));
      if (receives_apart_) {
        values_.push_back(absl::MakeSpan(incoming + a * plan.parameter_floats + offset, size));
      } else {
        values_.push_back(sides_.values ? absl::MakeSpan(exchanged_[a] + offset, size)
                                        : shown_.back());
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Replica::Base> Replica::MakeBase() {
  Base base;
  TESSERA_ASSIGN_OR_RETURN(base.values,
                           Buffer<float>::Create(backend_.memory(), exchanged_floats()));
  const float* update = base.values.data();
  if (!sides_.update) {
    TESSERA_ASSIGN_OR_RETURN(
        base.view,
        HostView<float>::Create(backend_.memory(), base.values.data(), exchanged_floats()));
    update = base.view.data();
  }
  const NetworkPlan& plan = network_->plan();
  // The view has the arrays one behind the other, as the base has.
  for (size_t a = 0; a < exchanged_.size(); ++a, update += plan.parameter_floats) {
    for (size_t i = 0; i < plan.shape.parameters.size(); ++i) {
      base.update.push_back(
          absl::MakeConstSpan(update + plan.parameter_offsets[i], plan.shape.parameters[i].size()));
    }
  }
  return base;
}

absl::Status Replica::AddIncoming() {
  Memory& memory = backend_.memory();
  TESSERA_ASSIGN_OR_RETURN(incoming_, Buffer<float>::Create(memory, exchanged_floats()));
  if (sides_.values) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(incoming_view_,
                           HostView<float>::Create(memory, incoming_.data(), exchanged_floats()));
  return absl::OkStatus();
}

// What a checkpoint has beside the values of the time of an exchange: what was this replica's own then.
absl::Status Replica::AddKeptStates() {
  Memory& memory = backend_.memory();
  const int64_t arrays =
      static_cast<int64_t>(optimizer_->device_states().size()) + (fragments_ != nullptr ? 1 : 0);
  const int64_t floats = arrays * network_->plan().parameter_floats;
  TESSERA_ASSIGN_OR_RETURN(kept_states_, Buffer<float>::Create(memory, floats));
  TESSERA_ASSIGN_OR_RETURN(kept_view_,
                           HostView<float>::Create(memory, kept_states_.data(), floats));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Replica::MemoryNeeded(const v1::Job& job, const Recipe& recipe,
                                              int64_t calibration_rows, const InputRows& input) {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  const NetworkMemory network =
      tessera::MemoryNeeded(plan, BatchRowsMax(job), precision, calibration_rows, input.sparse,
                            StepsColumns(job, recipe, input), RowsInPieces(job));
  int64_t bytes = network.held_bytes + network.calibration_bytes +
                  BatchRows::MemoryNeeded(job, plan.shape, input);
  if (recipe.payload != PayloadKind::kGradient) {
    const int64_t arrays = 1 + static_cast<int64_t>(recipe.averaged_states.size());
    const int64_t states = LocalOptimizer::MemoryNeeded(job.train().optimizer(), plan);
    const int64_t array = plan.parameter_floats * static_cast<int64_t>(sizeof(float));
    const bool keeps = recipe.overlaps && KeepsState(job);
    // A base, or two where exchanges overlap, and the incoming values.
    const int64_t copies = recipe.fragments ? 2 : recipe.overlaps ? 3 : 1;
    bytes += copies * arrays * array + (keeps ? 2 : 1) * states;
    if (keeps && recipe.fragments) bytes += array;
  }
  if (recipe.core) {
    // Entries on their way, each direction, and bits: core, explorer, both, as they are drawn.
    bytes += static_cast<int64_t>(2 * recipe.core->alpha * plan.parameter_floats * sizeof(float)) +
             plan.parameter_floats;
  }
  return bytes;
}

absl::StatusOr<int64_t> Replica::PrivateStateBytes(const v1::Job& job, const Recipe& recipe) {
  // With gradients the state is the servers', and averaged states are exchanged.
  if (recipe.payload == PayloadKind::kGradient || !recipe.averaged_states.empty()) return 0;
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(job.model()));
  const auto states = static_cast<int64_t>(StateNames(job.train().optimizer()).size());
  const int64_t arrays = states + (recipe.core || recipe.fragments ? 1 : 0);
  return arrays * shape.size * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<Losses> Replica::Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                      const TrainPoint& point) {
  Update update;
  if (optimizer_ != nullptr) ++local_steps_;
  // Averaged states belong to all workers, whose steps count alike; one's own state has seen this worker's steps.
  update.number = averages_states_ ? point.step + 1 : local_steps_;
  update.rate = point.rate;
  GradientWork* work = nullptr;
  if (optimizer_ != nullptr && optimizer_->follows_gradients() && clip_ == nullptr &&
      network_->steps().takes_work()) {
    // The last step of an exchange forms the delta behind each parameter's step, beside the steps of the others. Not
    // that of a fragment: a device records a step's work once, and the next exchange is of other entries.
    const bool forms = point.last && fragments_ == nullptr;
    work = forms ? static_cast<GradientWork*>(&last_steps_[base_]) : optimizer_.get();
  }
  formed_ = work == &last_steps_[base_];
  return steps_.Run(network_.get(), optimizer_.get(), data, rows, point,
                    {job_.seed(), point.step, rank_.value()}, update, work);
}

void Replica::FormDelta(int i) {
  const NetworkPlan& plan = network_->plan();
  const FragmentKeys::Run all = {static_cast<size_t>(i), 0, plan.shape.parameters[i].size()};
  // The other fragments' base is needed for as long as their turn has not come.
  const absl::Span<const FragmentKeys::Run> runs =
      fragments_ != nullptr ? fragments_->PushedOf(all.parameter) : absl::MakeConstSpan(&all, 1);
  for (size_t a = 0; a < exchanged_.size(); ++a) {
    for (const FragmentKeys::Run& run : runs) {
      const int64_t offset = plan.parameter_offsets[i] + run.offset;
      const int64_t place = static_cast<int64_t>(a) * plan.parameter_floats + offset;
      Base& base = bases_[base_];
      float* const values = base.values.data() + place;
      // In the base's place: values - base.
      backend_.vector().Subtract(run.size, exchanged_[a] + offset, values, values);
      if (!sides_.update) base.view.Fetch(place, run.size);
    }
  }
}

absl::Status Replica::FormUpdate() {
  if (optimizer_ != nullptr && !formed_) {
    // Where the last step did not do it, as with clipping.
    for (size_t i = 0; i < network_->shape().parameters.size(); ++i) FormDelta(static_cast<int>(i));
  }
  formed_ = false;
  // Clipping held them back in the backward pass.
  if (clip_ != nullptr && optimizer_ == nullptr && !sides_.update) {
    network_->arrays().FetchGradients();
  }
  // What the device itself sends on need not be waited for.
  return sides_.update ? backend_.TakeFailure() : backend_.Finish();
}

void Replica::SendValue(size_t i) {
  const size_t count = network_->shape().parameters.size();
  const int parameter = static_cast<int>(i % count);
  if (i < count) {
    network_->arrays().SendParameter(parameter);
  } else {
    optimizer_->SendState(static_cast<int>(i / count) - 1, parameter);
  }
}

void Replica::SendValues() {
  for (size_t i = 0; i < shown_.size(); ++i) SendValue(i);
}

absl::Status Replica::AdoptValues() {
  ahead_ = false;
  if (fragments_ != nullptr && fragments_->has_values()) {
    TakeUp(fragments_->End());
    return backend_.Finish();
  }
  // The first values are all entries', and no share of what was there before is kept.
  if (fragments_ != nullptr) fragments_->TakeAll();
  if (receives_apart_) {
    TakeIncoming();
  } else if (!sides_.values) {
    // The first sent_ arrays went to the device as they came (ValueSink).
    for (size_t i = sent_; i < shown_.size(); ++i) SendValue(i);
  }
  sent_ = 0;
  KeepBase();
  // What comes next is queued behind it.
  return backend_.TakeFailure();
}

void Replica::TakeIncoming() {
  if (!sides_.values) incoming_view_.Send();
  CopyArrays(incoming_.data(), exchanged_);
}

void Replica::TakeUp(absl::Span<const FragmentKeys::Run> runs) {
  for (const FragmentKeys::Run& run : runs) {
    const int64_t at = network_->plan().parameter_offsets[run.parameter] + run.offset;
    incoming_view_.Send(at, run.size);
    fragments_->TakeUp(run.size, incoming_.data() + at, exchanged_[0] + at,
                       bases_[0].values.data() + at, &backend_.memory(), &backend_.vector());
  }
}

absl::Status Replica::AdoptEarlierValues() {
  if (fragments_ != nullptr) {
    TakeUp(fragments_->EndBegun());
    KeepTakenUp();
    return backend_.Finish();
  }
  TakeIncoming();
  // What was trained since is kept: the values that have come, plus the delta that is on its way to the servers.
  const int64_t floats = network_->plan().parameter_floats;
  const float* delta = bases_[base_].values.data();
  for (float* const now : exchanged_) {
    backend_.vector().Axpy(floats, 1, delta, now);
    delta += floats;
  }
  // The next values may come as soon as they are asked for.
  return backend_.Finish();
}

absl::Status Replica::TrainOn() {
  if (fragments_ != nullptr) {
    fragments_->Begin();
  } else {
    // The other base is used while this one's delta is sent.
    base_ = 1 - base_;
    KeepBase();
  }
  KeepStates();
  ahead_ = true;
  return backend_.TakeFailure();
}

void Replica::KeepBase() {
  const int64_t floats = network_->plan().parameter_floats;
  float* base = bases_[base_].values.data();
  for (const float* const now : exchanged_) {
    backend_.memory().Copy(now, floats * static_cast<int64_t>(sizeof(float)), base);
    base += floats;
  }
}

void Replica::CopyArrays(const float* from, const std::vector<float*>& arrays) {
  const int64_t floats = network_->plan().parameter_floats;
  for (float* const array : arrays) {
    backend_.memory().Copy(from, floats * static_cast<int64_t>(sizeof(float)), array);
    from += floats;
  }
}

void Replica::KeepStates() {
  // A checkpoint is of the time of the exchange, not of now.
  kept_local_steps_ = local_steps_;
  if (kept_states_.size() == 0) return;
  const int64_t floats = network_->plan().parameter_floats;
  float* kept = kept_states_.data();
  for (const float* const state : optimizer_->device_states()) {
    backend_.memory().Copy(state, floats * static_cast<int64_t>(sizeof(float)), kept);
    kept += floats;
  }
  if (fragments_ == nullptr) return;
  backend_.memory().Copy(exchanged_[0], floats * static_cast<int64_t>(sizeof(float)), kept);
}

// A checkpoint is of the time when the exchange began, as if what that has brought had been there at once.
void Replica::KeepTakenUp() {
  if (kept_states_.size() == 0) return;
  const int64_t floats = network_->plan().parameter_floats;
  float* const kept =
      kept_states_.data() + static_cast<int64_t>(optimizer_->device_states().size()) * floats;
  for (const FragmentKeys::Run& run : fragments_->EndBegun()) {
    const int64_t at = network_->plan().parameter_offsets[run.parameter] + run.offset;
    fragments_->TakeUp(run.size, incoming_.data() + at, kept + at, bases_[0].values.data() + at,
                       &backend_.memory(), &backend_.vector());
  }
}

std::vector<float*> Replica::OwnArrays() {
  std::vector<float*> arrays = optimizer_->device_states();
  if (fragments_ != nullptr) arrays.push_back(exchanged_[0]);
  return arrays;
}

absl::Status Replica::AdoptPrivateState() {
  if (optimizer_ == nullptr || averages_states_) return absl::OkStatus();
  // The kept states are of the last exchange, and so are the values that come with them.
  if (overlaps_) {
    kept_view_.Send();
    CopyArrays(kept_states_.data(), OwnArrays());
    local_steps_ = kept_local_steps_;
  } else {
    optimizer_->SendStates();
    if (fragments_ != nullptr) SendValues();
  }
  // Entries that exchanges do not move are in the checkpoint, too.
  if (core_ != nullptr) {
    SendValues();
    KeepBase();
  }
  return backend_.Finish();
}

absl::StatusOr<PrivateState> Replica::private_state() {
  PrivateState state;
  // Averaged states are the servers'.
  if (optimizer_ == nullptr || averages_states_) return state;
  const NetworkPlan& plan = network_->plan();
  std::vector<absl::Span<float>> arrays = optimizer_->states();
  // What exchanges have not moved is this replica's own.
  absl::Span<float> own = keeps_values() ? network_->arrays().parameters() : absl::Span<float>();
  state.local_steps = &local_steps_;
  if (overlaps_) {
    TESSERA_CHECK(KeepsState(job_));
    // Not ahead of the exchange: the states are what a checkpoint wants now.
    if (!ahead_) KeepStates();
    kept_view_.Fetch();
    float* kept = kept_view_.data();
    for (absl::Span<float>& array : arrays) {
      array = absl::MakeSpan(kept, plan.parameter_floats);
      kept += plan.parameter_floats;
    }
    if (fragments_ != nullptr) own = absl::MakeSpan(kept, plan.parameter_floats);
    state.local_steps = &kept_local_steps_;
  } else {
    optimizer_->FetchStates();
  }
  if (core_ != nullptr || (fragments_ != nullptr && !overlaps_)) {
    network_->arrays().FetchParameters();
  }
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  const std::vector<std::string> names = StateNames(job_.train().optimizer());
  for (size_t s = 0; s < arrays.size(); ++s) {
    for (size_t p = 0; p < plan.shape.parameters.size(); ++p) {
      const ParameterSpec& spec = plan.shape.parameters[p];
      state.arrays.push_back({absl::StrCat("state.", names[s], ".", spec.name),
                              arrays[s].subspan(plan.parameter_offsets[p], spec.size())});
    }
  }
  for (size_t p = 0; !own.empty() && p < plan.shape.parameters.size(); ++p) {
    const ParameterSpec& spec = plan.shape.parameters[p];
    state.arrays.push_back(
        {absl::StrCat("replica.", spec.name), own.subspan(plan.parameter_offsets[p], spec.size())});
  }
  return state;
}

absl::Status Replica::Recut(const SubnetPlace&) {
  TESSERA_CHECK(false);  // All entries are nobody's part.
  return absl::OkStatus();
}

absl::StatusOr<ExchangeResult> Replica::BeginEvaluation(ParameterClient* servers, Exchange after,
                                                        IdleNotice word) {
  // Values that are on their way to the device are overwritten here.
  if (fragments_ != nullptr) {
    // No values are on their way: what was trained here stays where they come to.
    backend_.memory().Copy(exchanged_[0], exchanged_floats() * static_cast<int64_t>(sizeof(float)),
                           incoming_.data());
  }
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read, servers->Read(after, word, shown_));
  SendValues();
  // What was trained here and not sent is still in the base where exchanges move a core, as nothing was
  // trained since.
  if (!keeps_values()) KeepBase();
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return read;
}

absl::StatusOr<bool> Replica::EndEvaluation() {
  if (!keeps_values()) return false;
  // The values of before the evaluation, which read all entries from the servers.
  CopyArrays(fragments_ != nullptr ? incoming_.data() : bases_[0].values.data(), exchanged_);
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
