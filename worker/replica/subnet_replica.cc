#include "worker/replica/subnet_replica.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/keyset/mean_share.h"
#include "worker/exchange/subnet_places.h"
#include "worker/replica/replica.h"

namespace tessera {
namespace {

bool SameSizes(const ModelShape& a, const ModelShape& b) {
  return std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), [](const ParameterSpec& x, const ParameterSpec& y) {
                      return x.rows == y.rows && x.columns == y.columns;
                    });
}

}  // namespace

SubnetReplica::SubnetReplica(const v1::Job& job, const Recipe& recipe, Rank rank, Backend* backend,
                             const InputRows& input, const SubnetMemory& memory)
    : job_(job),
      rank_(rank),
      backend_(*backend),
      input_(input),
      memory_(memory),
      steps_columns_(StepsColumns(job, recipe, input)),
      sides_(DeviceSidesOf(recipe, backend->memory())),
      rows_(job, input) {}

absl::StatusOr<std::unique_ptr<SubnetReplica>> SubnetReplica::Create(
    const v1::Job& job, const Recipe& recipe, Rank rank, Exchange first, Backend* backend,
    const InputRows& input, const SubnetMemory& memory) {
  TESSERA_CHECK(recipe.payload == PayloadKind::kValue && recipe.averaged_states.empty());
  std::unique_ptr<SubnetReplica> replica(
      new SubnetReplica(job, recipe, rank, backend, input, memory));
  TESSERA_ASSIGN_OR_RETURN(replica->shape_, ShapeOf(job.model()));
  replica->groups_ = GroupsOf(replica->shape_, recipe.subnet_rules);
  TESSERA_ASSIGN_OR_RETURN(replica->clip_, GradientClip::Create(job.train().clip_norm(), *backend));
  replica->steps_.Clip(replica->clip_.get());
  replica->weights_of_mean_share_ = WeightsOfMeanShare(replica->shape_, replica->groups_);
  if (memory.evaluates_whole) TESSERA_RETURN_IF_ERROR(replica->MakeWhole());
  // The cut is a guess until Recut says otherwise.
  TESSERA_RETURN_IF_ERROR(replica->Expect(FirstPlace(job, rank, first)));
  return replica;
}

absl::Status SubnetReplica::MakeWhole() {
  Network::Options options;
  options.batch_max = BatchRowsMax(job_);
  options.sparse_input = input_.sparse;
  options.evaluates_only = true;
  TESSERA_ASSIGN_OR_RETURN(whole_, Network::Create(job_.model(), options, backend_));
  for (size_t i = 0; i < shape_.parameters.size(); ++i) {
    evaluation_values_.push_back(whole_->arrays().parameter(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::Status SubnetReplica::Expect(const SubnetPlace& place) {
  const Subnet subnet = SubnetOf(shape_, groups_, place);
  TESSERA_RETURN_IF_ERROR(CheckParts(subnet, place));
  value_keys_ =
      SubnetKeys(shape_, subnet, place, static_cast<int>(job_.cluster().servers().count()));
  // Before the first round has been trained an evaluation reckons with the cut that is expected.
  if (!update_keys_.subnet.has_value()) sites_ = place.sites();
  // Where sizes are as before the arrays stay, and only keys change.
  if (!values_.empty() && SameSizes(subnet.shape, next_plan_.shape)) return absl::OkStatus();
  next_model_ = SubnetModel(job_.model(), subnet);
  TESSERA_ASSIGN_OR_RETURN(next_plan_, PlanOf(next_model_));
  if (memory_.pulls_apart) return MakePulled();
  TESSERA_RETURN_IF_ERROR(MakeNetwork());
  for (size_t i = 0; i < shape_.parameters.size(); ++i) {
    values_.push_back(sides_.values ? network_->arrays().device_parameter(static_cast<int>(i))
                                    : network_->arrays().parameter(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::Status SubnetReplica::MakePulled() {
  // What is there may be on its way still.
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  // Grows only. A network of another size is made apart, when values are adopted.
  if (pulled_.size() < next_plan_.parameter_floats) {
    pulled_ = Buffer<float>();
    const int64_t floats = next_plan_.parameter_floats;
    TESSERA_ASSIGN_OR_RETURN(pulled_, sides_.values
                                          ? Buffer<float>::Create(backend_.memory(), floats)
                                          : Buffer<float>::CreateHost(backend_.memory(), floats));
  } else if (sides_.values) {
    backend_.memory().Zero(pulled_.data(), pulled_.bytes());
  } else {
    // What pads parameters is zero, and stays so.
    std::fill_n(pulled_.data(), pulled_.size(), 0.0f);
  }
  values_.clear();
  for (size_t i = 0; i < next_plan_.shape.parameters.size(); ++i) {
    values_.emplace_back(pulled_.data() + next_plan_.parameter_offsets[i],
                         next_plan_.shape.parameters[i].size());
  }
  return absl::OkStatus();
}

void SubnetReplica::DropNetwork() {
  // The optimizer refers to the network.
  optimizer_.reset();
  network_.reset();
  update_.clear();
  // Without memory apart values() are the network's own arrays.
  if (!memory_.pulls_apart) values_.clear();
}

absl::Status SubnetReplica::MakeNetwork() {
  DropNetwork();
  Network::Options options;
  options.batch_max = PieceRows(job_);
  options.minibatch_max = RowsInPieces(job_);
  options.sparse_input = input_.sparse;
  options.steps_first_weight = steps_columns_;
  TESSERA_ASSIGN_OR_RETURN(options.precision, PrecisionOf(job_.train().precision()));
  TESSERA_ASSIGN_OR_RETURN(network_, Network::Create(next_model_, options, backend_));
  // The state is new: neurons of this round were others' in the last one.
  TESSERA_ASSIGN_OR_RETURN(optimizer_,
                           LocalOptimizer::Create(job_.train().optimizer(), *network_, backend_));
  for (size_t i = 0; i < shape_.parameters.size(); ++i) {
    update_.push_back(sides_.update ? network_->arrays().device_parameter(static_cast<int>(i))
                                    : network_->arrays().parameter(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::Status SubnetReplica::FormUpdate() {
  // Evaluations from here on are of a model trained with so many sites.
  sites_ = update_keys_.subnet->sites();
  trains_ = false;
  // The last step has fetched each parameter as it was done, where it could.
  if (!sides_.update && !fetched_) network_->arrays().FetchParameters();
  fetched_ = false;
  return sides_.update ? backend_.TakeFailure() : backend_.Finish();
}

bool SubnetReplica::FitsNext() const {
  return network_ != nullptr && SameSizes(network_->shape(), next_plan_.shape);
}

void SubnetReplica::SendValue(size_t i) {
  const int64_t bytes = static_cast<int64_t>(values_[i].size() * sizeof(float));
  backend_.memory().Send(values_[i].data(), bytes,
                         network_->arrays().device_parameters() + next_plan_.parameter_offsets[i]);
}

absl::Status SubnetReplica::AdoptValues() {
  sites_ = (update_keys_.subnet.has_value() ? update_keys_ : value_keys_).subnet->sites();
  // Another network for another size. Nothing was sent early then (value_sink).
  if (!FitsNext()) {
    TESSERA_CHECK(sent_ == 0);
    TESSERA_RETURN_IF_ERROR(MakeNetwork());
  } else {
    // In the same network the state begins at zero.
    TESSERA_RETURN_IF_ERROR(optimizer_->Reset());
  }
  if (memory_.pulls_apart && sides_.values) {
    const int64_t bytes = next_plan_.parameter_floats * static_cast<int64_t>(sizeof(float));
    backend_.memory().Copy(pulled_.data(), bytes, network_->arrays().device_parameters());
  } else if (memory_.pulls_apart) {
    // The first sent_ arrays are on the device.
    for (size_t i = sent_; i < values_.size(); ++i) SendValue(i);
  } else if (!sides_.values) {
    network_->arrays().SendParameters();
  }
  sent_ = 0;
  TESSERA_RETURN_IF_ERROR(backend_.TakeFailure());
  // Adam's correction of its means counts steps of this round.
  local_steps_ = 0;
  trains_ = true;
  update_keys_ = value_keys_;
  // The next round's keys are known from now on, and may be asked for with the push.
  return Expect(NextPlace(*update_keys_.subnet));
}

absl::Status SubnetReplica::Recut(const SubnetPlace& place) {
  TESSERA_CHECK(place.round == value_keys_.subnet->round);
  // What came early was of another cut.
  sent_ = 0;
  return Expect(place);
}

absl::Status SubnetReplica::BeginTail() {
  TESSERA_CHECK(false);  // TailedReplica's.
  return absl::OkStatus();
}

absl::StatusOr<Losses> SubnetReplica::Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                            const TrainPoint& point) {
  Update update;
  update.number = ++local_steps_;
  update.rate = point.rate;
  GradientWork* work = nullptr;
  if (optimizer_->follows_gradients() && clip_ == nullptr && network_->steps().takes_work()) {
    work = point.last ? static_cast<GradientWork*>(&last_step_) : optimizer_.get();
  }
  fetched_ = work == &last_step_;
  return steps_.Run(network_.get(), optimizer_.get(), data, rows, point,
                    {job_.seed(), point.step, rank_.value()}, update, work);
}

absl::StatusOr<ExchangeResult> SubnetReplica::BeginEvaluation(ParameterClient* servers,
                                                              Exchange after, IdleNotice word) {
  const float mean_share = 1.0f / static_cast<float>(sites_);
  if (whole_ != nullptr) {
    // Read outside of exchanges: the whole model, in f32.
    TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read,
                             servers->Read(after, word, evaluation_values_));
    for (const int weight : weights_of_mean_share_) {
      // A sum over all neurons is larger than one over a site's in training: 1/sites makes up for it.
      for (float& w : evaluation_values_[weight]) w *= mean_share;
    }
    whole_->arrays().SendParameters();
    return read;
  }
  // What is fetched into its place is not lost: EndEvaluation has it pulled again.
  if (!memory_.pulls_apart) DropNetwork();
  TESSERA_ASSIGN_OR_RETURN(streamed_,
                           StreamedNetwork::Create(job_.model(), memory_.streamed, backend_));
  std::vector<float> factors(shape_.parameters.size(), 1.0f);
  for (const int weight : weights_of_mean_share_) factors[weight] = mean_share;
  TESSERA_RETURN_IF_ERROR(streamed_->Begin(servers, std::move(factors)));
  return ExchangeResult();
}

absl::StatusOr<bool> SubnetReplica::EndEvaluation() {
  streamed_.reset();
  if (memory_.pulls_apart || network_ != nullptr) return false;
  // The network was dropped for the evaluation: the caller pulls again. The round that was adopted, if there was one,
  // rather than the one after it.
  TESSERA_RETURN_IF_ERROR(Expect(trains_ ? *update_keys_.subnet : *value_keys_.subnet));
  return true;
}

absl::StatusOr<std::vector<float>> SubnetReplica::Calibrate(const Dataset& data,
                                                            absl::Span<const uint32_t> rows) {
  if (whole_ != nullptr) return rows_.Calibrate(whole_.get(), data, rows);
  RowExamples examples(&rows_, &data, rows);
  return streamed_->Calibrate(&examples);
}

absl::StatusOr<Scores> SubnetReplica::Score(const Dataset& data, absl::Span<const uint32_t> rows,
                                            absl::Span<const float> constants) {
  if (whole_ != nullptr) return rows_.Score(whole_.get(), data, rows, constants);
  RowExamples examples(&rows_, &data, rows);
  return streamed_->Score(&examples, constants);
}

}  // namespace tessera
