#include "worker/client/caller_subnet_learner.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/keyset/key_set.h"
#include "common/keyset/mean_share.h"
#include "worker/exchange/subnet_places.h"

namespace tessera {

CallerSubnetLearner::CallerSubnetLearner(CallerLearner::Options options, Backend* backend,
                                         Turns* turns, CallerExchange* exchange)
    : options_(std::move(options)),
      backend_(*backend),
      turns_(*turns),
      exchange_(*exchange),
      groups_(GroupsOf(options_.exchanged, options_.recipe.subnet_rules)),
      weights_of_mean_share_(WeightsOfMeanShare(options_.exchanged, groups_)) {}

absl::StatusOr<std::unique_ptr<CallerSubnetLearner>> CallerSubnetLearner::Create(
    CallerLearner::Options options, Backend* backend, Turns* turns, CallerExchange* exchange) {
  TESSERA_CHECK(options.recipe.subnets && options.recipe.payload == PayloadKind::kValue);
  TESSERA_RETURN_IF_ERROR(CheckCallersJob(options.job, options.recipe));
  std::unique_ptr<CallerSubnetLearner> learner(
      new CallerSubnetLearner(std::move(options), backend, turns, exchange));
  // What a life before this one had is gone.
  exchange->state.clear();
  exchange->loaded_state.clear();
  TESSERA_RETURN_IF_ERROR(learner->Expect(
      FirstPlace(learner->options_.job, learner->options_.rank, learner->options_.first)));
  return learner;
}

CallerCut CallerSubnetLearner::CutAt(const SubnetPlace& place, const Subnet& subnet) const {
  CallerCut cut;
  cut.round = place.round;
  cut.site = place.site;
  cut.sites = place.sites();
  for (int group = 1; group < groups_.outputs; ++group) {
    const std::vector<int32_t>& units = subnet.neurons[static_cast<size_t>(group)];
    cut.units.emplace_back(units.begin(), units.end());
  }
  for (const ParameterSpec& spec : subnet.shape.parameters) {
    cut.extents.push_back({spec.rows, spec.columns});
  }
  return cut;
}

CallerCut CallerSubnetLearner::WholeCut() const {
  CallerCut cut;
  cut.is_whole = true;
  cut.round = cut_.round;
  cut.site = cut_.site;
  cut.sites = cut_.sites;
  for (int group = 1; group < groups_.outputs; ++group) {
    std::vector<uint32_t> units(static_cast<size_t>(groups_.widths[static_cast<size_t>(group)]));
    for (size_t unit = 0; unit < units.size(); ++unit) units[unit] = static_cast<uint32_t>(unit);
    cut.units.push_back(std::move(units));
  }
  for (const ParameterSpec& spec : options_.exchanged.parameters) {
    cut.extents.push_back({spec.rows, spec.columns});
  }
  return cut;
}

absl::Status CallerSubnetLearner::Expect(const SubnetPlace& place) {
  const Subnet subnet = SubnetOf(options_.exchanged, groups_, place);
  TESSERA_RETURN_IF_ERROR(CheckParts(subnet, place));
  value_keys_ = SubnetKeys(options_.exchanged, subnet, place,
                           static_cast<int>(options_.job.cluster().servers().count()));
  next_cut_ = CutAt(place, subnet);
  // Before the first round has been trained an evaluation reckons with the cut that is expected.
  if (!update_keys_.subnet.has_value()) sites_ = place.sites();
  // The memory grows only: parts of different rounds differ by a unit or so.
  if (pulled_.size() < subnet.shape.size) {
    values_.clear();
    pulled_ = Buffer<float>();
    TESSERA_ASSIGN_OR_RETURN(pulled_, Buffer<float>::Create(backend_.memory(), subnet.shape.size));
  }
  values_.clear();
  int64_t offset = 0;
  for (const ParameterSpec& spec : subnet.shape.parameters) {
    values_.push_back(absl::MakeSpan(pulled_.data() + offset, static_cast<size_t>(spec.size())));
    offset += spec.size();
  }
  return absl::OkStatus();
}

absl::Status CallerSubnetLearner::AdoptValues() {
  if (tail_ != nullptr) {
    trains_whole_ = true;
    update_.clear();
    pushed_ = Buffer<float>();
    return tail_->AdoptValues();
  }
  sites_ = (update_keys_.subnet.has_value() ? update_keys_ : value_keys_).subnet->sites();
  exchange_.SetCut(next_cut_);
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kValues));
  for (size_t i = 0; i < count(); ++i) {
    std::copy(values_[i].begin(), values_[i].end(), exchange_.values[i]);
  }
  update_keys_ = value_keys_;
  cut_ = next_cut_;
  // The next round's keys are known from now on, and may be asked for with the push.
  return Expect(NextPlace(*update_keys_.subnet));
}

absl::Status CallerSubnetLearner::Recut(const SubnetPlace& place) {
  TESSERA_CHECK(place.round == value_keys_.subnet->round);
  return Expect(place);
}

absl::StatusOr<Losses> CallerSubnetLearner::Train(const Dataset& data,
                                                  absl::Span<const uint32_t> rows,
                                                  const TrainPoint& point) {
  if (trains_whole_) return tail_->Train(data, rows, point);
  exchange_.point = point;
  exchange_.rows.assign(rows.begin(), rows.end());
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kMinibatch));
  return Losses{exchange_.loss};
}

absl::Status CallerSubnetLearner::FormUpdate() {
  if (trains_whole_) return tail_->FormUpdate();
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kExchange));
  // Evaluations from here on are of a model trained with so many sites.
  sites_ = update_keys_.subnet->sites();
  update_.clear();
  for (size_t i = 0; i < count(); ++i) {
    const CallerCut::Extents& extents = cut_.extents[i];
    update_.push_back(absl::MakeConstSpan(exchange_.values[i],
                                          static_cast<size_t>(extents.rows * extents.columns)));
  }
  return absl::OkStatus();
}

absl::Status CallerSubnetLearner::BeginTail() {
  TESSERA_CHECK(tail_ == nullptr);
  // The caller may free the round's arrays as soon as it has given others, which is before the push.
  int64_t size = 0;
  for (const absl::Span<const float> each : update_) size += static_cast<int64_t>(each.size());
  if (size > 0) {
    TESSERA_ASSIGN_OR_RETURN(pushed_, Buffer<float>::Create(backend_.memory(), size));
    float* out = pushed_.data();
    for (absl::Span<const float>& each : update_) {
      std::copy(each.begin(), each.end(), out);
      each = absl::MakeConstSpan(out, each.size());
      out += each.size();
    }
  }
  CallerLearner::Options options = options_;
  options.recipe = TailOf(options_.recipe);
  TESSERA_ASSIGN_OR_RETURN(
      tail_, CallerLearner::Create(std::move(options), &backend_, &turns_, &exchange_));
  exchange_.SetCut(WholeCut());
  return tail_->AwaitMemory();
}

absl::Status CallerSubnetLearner::PrepareToSave() {
  if (trains_whole_) return tail_->PrepareToSave();
  exchange_.state.clear();
  return turns_.Ask(Want::kState);
}

absl::StatusOr<PrivateState> CallerSubnetLearner::private_state() {
  if (trains_whole_) return tail_->private_state();
  PrivateState state;
  state.bytes.push_back({kCallerState, &exchange_.state});
  state.sites = &sites_;
  return state;
}

absl::Status CallerSubnetLearner::AdoptPrivateState() {
  if (trains_whole_) return tail_->AdoptPrivateState();
  exchange_.loaded_state = std::move(exchange_.state);
  exchange_.state.clear();
  return absl::OkStatus();
}

absl::StatusOr<ExchangeResult> CallerSubnetLearner::BeginEvaluation(ParameterClient* servers,
                                                                    Exchange after,
                                                                    IdleNotice word) {
  if (trains_whole_) {
    scores_ = true;
    return tail_->BeginEvaluation(servers, after, word);
  }
  CallerCut whole = WholeCut();
  whole.is_evaluation = true;
  exchange_.SetCut(std::move(whole));
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kValues));
  scores_ = !exchange_.values.empty();
  if (!scores_) return ExchangeResult();
  ParameterArrays shown;
  for (size_t i = 0; i < count(); ++i) {
    const auto size = static_cast<size_t>(options_.exchanged.parameters[i].size());
    shown.push_back(absl::MakeSpan(exchange_.values[i], size));
  }
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read, servers->Read(after, word, shown));
  const float mean_share = 1.0f / static_cast<float>(sites_);
  for (const int weight : weights_of_mean_share_) {
    // A sum over all units is larger than one over a site's in training: 1/sites makes up for it.
    for (float& value : shown[static_cast<size_t>(weight)]) value *= mean_share;
  }
  return read;
}

absl::StatusOr<bool> CallerSubnetLearner::EndEvaluation() {
  if (trains_whole_) return tail_->EndEvaluation();
  exchange_.SetCut(cut_);
  return false;
}

absl::StatusOr<std::vector<float>> CallerSubnetLearner::Calibrate(const Dataset&,
                                                                  absl::Span<const uint32_t>) {
  return std::vector<float>();
}

absl::StatusOr<Scores> CallerSubnetLearner::Score(const Dataset& data,
                                                  absl::Span<const uint32_t> rows,
                                                  absl::Span<const float> constants) {
  if (trains_whole_) return tail_->Score(data, rows, constants);
  if (!scores_) return Scores();
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kScores));
  return exchange_.scores;
}

}  // namespace tessera
