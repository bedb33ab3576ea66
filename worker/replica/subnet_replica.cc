#include "worker/replica/subnet_replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/keyset/mean_share.h"
#include "worker/replica/replica.h"

namespace tessera {
namespace {

bool SameSizes(const ModelShape& a, const ModelShape& b) {
  return std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), [](const ParameterSpec& x, const ParameterSpec& y) {
                      return x.rows == y.rows && x.columns == y.columns;
                    });
}

// The guess is that the next round is cut among the same sites.
SubnetPlace Next(SubnetPlace place) {
  ++place.round;
  return place;
}

absl::Status CheckParts(const Subnet& subnet, const SubnetPlace& place) {
  for (size_t group = 0; group < subnet.neurons.size(); ++group) {
    if (!subnet.neurons[group].empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("subnet: site ", place.site, " of ", place.sites(), " has none of the ",
                     subnet.groups.widths[group], " neurons of hidden layer ", group, " in round ",
                     place.round, ", want at least 1; use fewer workers"));
  }
  return absl::OkStatus();
}

}  // namespace

SubnetReplica::SubnetReplica(const v1::Job& job, const Recipe& recipe, Rank rank, Backend* backend,
                             const InputRows& input)
    : job_(job),
      rank_(rank),
      backend_(*backend),
      input_(input),
      steps_columns_(StepsColumns(job, recipe, input)),
      rows_(job, input) {}

absl::StatusOr<std::unique_ptr<SubnetReplica>> SubnetReplica::Create(const v1::Job& job,
                                                                     const Recipe& recipe,
                                                                     Rank rank, Exchange first,
                                                                     Backend* backend,
                                                                     const InputRows& input) {
  TESSERA_CHECK(recipe.payload == PayloadKind::kValue && recipe.averaged_states.empty());
  std::unique_ptr<SubnetReplica> replica(new SubnetReplica(job, recipe, rank, backend, input));
  TESSERA_ASSIGN_OR_RETURN(replica->shape_, ShapeOf(job.model()));
  replica->groups_ = GroupsOf(job.model(), replica->shape_);
  replica->weights_of_mean_share_ =
      WeightsOfMeanShare(job.model(), replica->shape_, replica->groups_);
  TESSERA_RETURN_IF_ERROR(replica->MakeWhole());
  SubnetPlace place;
  place.seed = job.seed();
  place.round = first.value();
  place.site = static_cast<uint32_t>(rank.value());
  place.shares.assign(std::max<uint64_t>(job.cluster().workers(), rank.value() + 1), 1);
  TESSERA_RETURN_IF_ERROR(replica->Expect(place));
  return replica;
}

absl::StatusOr<int64_t> SubnetReplica::MemoryNeeded(const v1::Job& job, const Recipe& recipe,
                                                    int64_t calibration_rows,
                                                    const InputRows& input) {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan whole, PlanOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  SubnetPlace place;
  // Rounding gives the last site the largest part.
  place.shares.assign(std::max<int64_t>(job.cluster().workers(), 1), 1);
  place.site = place.sites() - 1;
  const Subnet subnet = SubnetOf(whole.shape, GroupsOf(job.model(), whole.shape), place);
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan part, PlanOf(SubnetModel(job.model(), subnet)));
  const int64_t calibrated = whole.constants > 0 ? calibration_rows : 0;
  const NetworkMemory trained =
      tessera::MemoryNeeded(part, job.train().batch_size(), precision, 0, input.sparse);
  const NetworkMemory evaluated =
      tessera::MemoryNeeded(whole, BatchRowsMax(job), precision, calibrated, input.sparse);
  return trained.held_bytes + part.parameter_floats * static_cast<int64_t>(sizeof(float)) +
         LocalOptimizer::MemoryNeeded(job.train().optimizer(), part) + evaluated.evaluation_bytes +
         evaluated.calibration_bytes + BatchRows::MemoryNeeded(job, whole.shape, input, calibrated);
}

absl::Status SubnetReplica::MakeWhole() {
  Network::Options options;
  options.batch_max = BatchRowsMax(job_);
  options.sparse_input = input_.sparse;
  options.evaluates_only = true;
  TESSERA_ASSIGN_OR_RETURN(whole_, Network::Create(job_.model(), options, backend_));
  for (size_t i = 0; i < shape_.parameters.size(); ++i) {
    evaluation_values_.push_back(whole_->parameter(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::Status SubnetReplica::Expect(const SubnetPlace& place) {
  const Subnet subnet = SubnetOf(shape_, groups_, place);
  TESSERA_RETURN_IF_ERROR(CheckParts(subnet, place));
  value_keys_ =
      SubnetKeys(shape_, subnet, place, static_cast<int>(job_.cluster().servers().count()));
  if (network_ == nullptr) sites_ = place.sites();
  if (!values_.empty() && SameSizes(subnet.shape, next_plan_.shape)) return absl::OkStatus();
  next_model_ = SubnetModel(job_.model(), subnet);
  TESSERA_ASSIGN_OR_RETURN(next_plan_, PlanOf(next_model_));
  if (pulled_.size() < next_plan_.parameter_floats) {
    pulled_ = Buffer<float>();
    TESSERA_ASSIGN_OR_RETURN(pulled_,
                             Buffer<float>::Create(backend_.memory(), next_plan_.parameter_floats));
  } else {
    // What pads parameters is zero, and stays so.
    backend_.memory().Zero(pulled_.data(), pulled_.bytes());
    TESSERA_RETURN_IF_ERROR(backend_.Finish());
  }
  values_.clear();
  for (size_t i = 0; i < next_plan_.shape.parameters.size(); ++i) {
    values_.emplace_back(pulled_.data() + next_plan_.parameter_offsets[i],
                         next_plan_.shape.parameters[i].size());
  }
  return absl::OkStatus();
}

absl::Status SubnetReplica::MakeNetwork() {
  optimizer_.reset();
  network_.reset();
  Network::Options options;
  options.batch_max = job_.train().batch_size();
  options.sparse_input = input_.sparse;
  options.steps_first_weight = steps_columns_;
  TESSERA_ASSIGN_OR_RETURN(options.precision, PrecisionOf(job_.train().precision()));
  TESSERA_ASSIGN_OR_RETURN(network_, Network::Create(next_model_, options, backend_));
  TESSERA_ASSIGN_OR_RETURN(optimizer_,
                           LocalOptimizer::Create(job_.train().optimizer(), *network_, backend_));
  update_.clear();
  for (size_t i = 0; i < shape_.parameters.size(); ++i) {
    update_.push_back(network_->parameter(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::Status SubnetReplica::AdoptValues() {
  sites_ = (network_ == nullptr ? value_keys_ : update_keys_).subnet->sites();
  if (network_ == nullptr || !SameSizes(network_->shape(), next_plan_.shape)) {
    TESSERA_RETURN_IF_ERROR(MakeNetwork());
  } else {
    TESSERA_RETURN_IF_ERROR(optimizer_->Reset());
  }
  const absl::Span<float> parameters = network_->parameters();
  backend_.memory().CopyIn(pulled_.data(), parameters.size() * sizeof(float), parameters.data());
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  local_steps_ = 0;
  update_keys_ = value_keys_;
  return Expect(Next(*update_keys_.subnet));
}

absl::Status SubnetReplica::Recut(const SubnetPlace& place) {
  TESSERA_CHECK(place.round == value_keys_.subnet->round);
  return Expect(place);
}

absl::StatusOr<double> SubnetReplica::Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                            const TrainPoint& point) {
  const Batch batch = rows_.Fill(data, rows);
  TESSERA_ASSIGN_OR_RETURN(const LossAndCount result,
                           network_->TrainStep(batch, {job_.seed(), point.step, rank_.value()}));
  Update update;
  update.number = ++local_steps_;
  update.rate = point.rate;
  TESSERA_RETURN_IF_ERROR(optimizer_->Step(update));
  return result.loss;
}

absl::Status SubnetReplica::AdoptEvaluation() {
  if (sites_ == 1) return absl::OkStatus();
  const float mean_share = 1.0f / static_cast<float>(sites_);
  for (const int weight : weights_of_mean_share_) {
    for (float& w : evaluation_values_[weight]) w *= mean_share;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> SubnetReplica::Calibrate(const Dataset& data,
                                                            absl::Span<const uint32_t> rows) {
  return rows_.Calibrate(whole_.get(), data, rows);
}

absl::StatusOr<Scores> SubnetReplica::Score(const Dataset& data, absl::Span<const uint32_t> rows,
                                            absl::Span<const float> constants) {
  return rows_.Score(whole_.get(), data, rows, constants);
}

}  // namespace tessera
