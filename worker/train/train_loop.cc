#include "worker/train/train_loop.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

Partition PartitionOf(const v1::Job& job) {
  const absl::StatusOr<Partition> partition = ParsePartition(job.data().partition());
  TESSERA_CHECK(partition.ok());  // The job reader lets no other name through.
  return *partition;
}

}  // namespace

TrainLoop::TrainLoop(Options options, const Datasets* data, Replica* replica,
                     ParameterClient* servers, Coordination* coordination)
    : options_(std::move(options)),
      data_(*data),
      replica_(*replica),
      servers_(*servers),
      coordination_(*coordination),
      order_({PartitionOf(options_.job), options_.job.seed(), data->train.rows(),
              options_.job.train().batch_size()}),
      step_(options_.first_step),
      epoch_(options_.first_epoch),
      exchange_(options_.first_exchange.value() - 1) {}

bool TrainLoop::Finished() const {
  const v1::Train& train = options_.job.train();
  if (train.steps() > 0) return step_ >= static_cast<uint64_t>(train.steps());
  return epoch_ >= static_cast<uint64_t>(train.epochs());
}

bool TrainLoop::Draining() const {
  const Exchange last = coordination_.drain_exchange();
  return last != Exchange(0) && exchange_ >= last;
}

TrainProgress TrainLoop::progress() const {
  return {step_, exchange_.value(), examples_, epoch_, last_loss_};
}

absl::Status TrainLoop::Run() {
  absl::StatusOr<ExchangeTimes> pulled = servers_.Pull(exchange_, replica_.values());
  if (!pulled.ok()) return pulled.status();
  TESSERA_RETURN_IF_ERROR(replica_.AdoptValues());
  TESSERA_RETURN_IF_ERROR(coordination_.BeginTraining());
  phases_.Begin(Phase::kCompute);
  TESSERA_RETURN_IF_ERROR(BeginEpoch());
  // It joined when no step was left: it only evaluates with the others.
  if (Finished()) TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/true));
  while (!stop_ && !stopping_ && !Finished()) {
    TESSERA_RETURN_IF_ERROR(TrainStep());
    if (since_exchange_ < options_.recipe.local_steps && !Finished()) continue;
    TESSERA_RETURN_IF_ERROR(DoExchange());
    if (Finished()) {
      TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/true));
      break;
    }
    if (evaluation_due_ || Draining()) TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/false));
  }
  phases_.Enter(Phase::kOutside);
  return absl::OkStatus();
}

// Also right for a worker that joined in the middle of an epoch.
absl::Status TrainLoop::BeginEpoch() {
  const Phase before = phases_.Enter(Phase::kWait);
  // Epochs get shorter as workers join: one that joins late may begin past the epoch that it was
  // told.
  for (; !Finished(); ++epoch_) {
    TESSERA_ASSIGN_OR_RETURN(cut_, coordination_.BeginEpoch(epoch_, step_));
    const uint64_t end = cut_.first_step + static_cast<uint64_t>(cut_.steps);
    if (step_ < end) break;
    if (epoch_ + 1 == static_cast<uint64_t>(options_.job.train().epochs())) step_ = end;
  }
  phases_.Enter(before);
  if (Finished()) return absl::OkStatus();
  EpochPlace place;
  place.epoch = epoch_;
  place.rank = options_.rank;
  place.part = cut_.part;
  place.parts = cut_.parts;
  place.rows_total = cut_.rows_total;
  TESSERA_RETURN_IF_ERROR(order_.Begin(place));
  if (order_.steps() != cut_.steps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data: worker ", options_.rank.value(), " has ", data_.train.rows(),
        " training rows, which makes ", order_.steps(), " steps an epoch, want ", cut_.steps,
        " as the other workers have; the workers' training files differ (data.partition: local "
        "allows that)"));
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::TrainStep() {
  const uint64_t in_epoch = step_ - cut_.first_step;
  TESSERA_CHECK(in_epoch < static_cast<uint64_t>(cut_.steps));
  const absl::Span<const uint32_t> rows = order_.Rows(in_epoch);
  TESSERA_ASSIGN_OR_RETURN(last_loss_, replica_.Train(data_.train, rows, step_));
  loss_sum_ += last_loss_;
  ++loss_count_;
  ++step_;
  ++since_exchange_;
  examples_ += rows.size();
  examples_since_exchange_ += rows.size();
  coordination_.SetProgress(progress());
  if (in_epoch + 1 < static_cast<uint64_t>(cut_.steps)) return absl::OkStatus();
  ++epoch_;
  const uint64_t every = options_.job.train().evaluate_every();
  if (every > 0 && epoch_ % every == 0) evaluation_due_ = true;
  return Finished() ? absl::OkStatus() : BeginEpoch();
}

absl::Status TrainLoop::DoExchange() {
  TESSERA_RETURN_IF_ERROR(replica_.FormUpdate());
  phases_.Enter(Phase::kPull);
  const Exchange next = exchange_.Next();
  TESSERA_ASSIGN_OR_RETURN(
      const ExchangeTimes times,
      servers_.PushPull(next, examples_since_exchange_, replica_.update(), replica_.values()));
  phases_.Enter(Phase::kCompute);
  phases_.Move(Phase::kPull, Phase::kPush, times.push_seconds);
  phases_.Move(Phase::kPull, Phase::kWait, times.wait_seconds);
  exchange_ = next;
  since_exchange_ = 0;
  examples_since_exchange_ = 0;
  coordination_.SetProgress(progress());
  return replica_.AdoptValues();
}

absl::Status TrainLoop::Evaluate(bool last) {
  Coordination::Arrival arrival;
  arrival.progress = progress();
  arrival.loss_sum = loss_sum_;
  arrival.loss_count = loss_count_;
  arrival.last = last;
  std::optional<EvaluationResult> result;
  while (!result.has_value()) {
    TESSERA_ASSIGN_OR_RETURN(result, EvaluateOnce(arrival));
  }
  stop_ = result->stop;
  loss_sum_ = 0;
  loss_count_ = 0;
  evaluation_due_ = false;
  phases_.Enter(Phase::kCompute);
  return absl::OkStatus();
}

// nullopt: a member was lost in between, and all begin again.
absl::StatusOr<std::optional<EvaluationResult>> TrainLoop::EvaluateOnce(
    const Coordination::Arrival& arrival) {
  phases_.Enter(Phase::kWait);
  TESSERA_ASSIGN_OR_RETURN(const EvaluationPlace place, coordination_.Arrive(arrival));
  if (place.finished.has_value()) return place.finished;
  phases_.Enter(Phase::kEvaluate);
  // What the servers have committed is what counts, and what training goes on from.
  TESSERA_RETURN_IF_ERROR(servers_.Read(replica_.values()));
  TESSERA_RETURN_IF_ERROR(replica_.AdoptValues());
  std::vector<float> constants;
  if (place.part == 0) {
    const bool owns_part = options_.job.data().partition() == "shard" && cut_.part < cut_.parts;
    const std::vector<uint32_t> rows =
        CalibrationRows(options_.job.seed(), data_.train.rows(), owns_part ? cut_.part : 0,
                        owns_part ? cut_.parts : 1);
    TESSERA_ASSIGN_OR_RETURN(constants, replica_.Calibrate(data_.train, rows));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::optional<std::vector<float>> shared,
                           coordination_.ShareConstants(place, std::move(constants)));
  if (!shared.has_value()) return std::optional<EvaluationResult>();
  const std::vector<uint32_t> rows = EvaluationRows(data_.test.rows(), place.part, place.parts);
  TESSERA_ASSIGN_OR_RETURN(const Scores scores, replica_.Score(data_.test, rows, *shared));
  EvaluationScores sums;
  sums.loss_sum = scores.loss_sum;
  sums.correct = scores.correct;
  sums.rows = scores.rows;
  for (int i = 0; i < 3; ++i) sums.precision_hits[i] = scores.precision_hits[i];
  return coordination_.Score(place, sums);
}

}  // namespace tessera
