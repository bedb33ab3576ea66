#include "worker/replica/half_replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "worker/model/network_memory.h"

namespace tessera {
namespace {

// Tells of a wait for as long as it lives.
class Waiting {
 public:
  explicit Waiting(TrainWaits* waits) : waits_(waits) {
    if (waits_ != nullptr) waits_->BeginWait();
  }
  ~Waiting() {
    if (waits_ != nullptr) waits_->EndWait();
  }

 private:
  TrainWaits* const waits_;
};

LayerRange LayersOf(const LayerSplit& split, bool is_linear) {
  return is_linear ? LayerRange{split.cut.layer, split.cut.layers} : LayerRange{0, split.cut.layer};
}

class FrontReplica final : public HalfReplica {
 public:
  FrontReplica(const v1::Job& job, Rank rank, Backend* backend, ActivationSender* sender)
      : HalfReplica(job, rank, backend), sender_(*sender) {}

  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    // No gradient to push, unless the step comes to its end.
    summed_ = 0;
    const BatchPlace place =
        network_->input().Room(static_cast<int64_t>(rows.size()), data.has_classes());
    const Batch batch = rows_.Fill(data, rows, place, point.epoch);
    // The key of the step, so that what dropout draws does not depend on which worker computes which layers.
    TESSERA_RETURN_IF_ERROR(
        network_->front().BeginForward(batch, {job_.seed(), point.step, rank_.value()}));
    ActivationBatch sent;
    sent.step = point.step;
    sent.plan = point.plan;
    sent.rows = batch.rows;
    // The activations are known here. The labels go along, as the linear layers compute the loss.
    TESSERA_ASSIGN_OR_RETURN(sent.activations, network_->front().Activations());
    if (batch.labels != nullptr) {
      sent.classes = absl::MakeConstSpan(batch.labels, rows.size() * data.places());
    } else {
      sent.targets = absl::MakeConstSpan(batch.targets, rows.size() * data.outputs());
    }
    absl::StatusOr<ActivationAnswer> answer = Ask(sent, point.waits);
    TESSERA_RETURN_IF_ERROR(answer.status());
    // The next step drops this one.
    if (answer->too_late) {
      Log(LogLevel::kWarning,
          absl::StrCat(
              "worker: minibatch dropped step=", point.step,
              " why=\"the linear layers were updated without it: its linear worker is gone\""));
      return Losses();
    }
    TESSERA_RETURN_IF_ERROR(network_->front().FinishStep(answer->gradient));
    // One minibatch is in the gradient.
    summed_ = 1;
    return Losses{answer->loss};
  }

  int64_t exchanged_bytes() const override { return sender_.payload_bytes(); }

 private:
  // Time in here is waiting, not computing (TrainWaits).
  absl::StatusOr<ActivationAnswer> Ask(const ActivationBatch& batch, TrainWaits* waits) {
    const Waiting waiting(waits);
    return sender_.Exchange(batch);
  }

  ActivationSender& sender_;
};

class LinearReplica final : public HalfReplica {
 public:
  LinearReplica(const v1::Job& job, Rank rank, Backend* backend, ActivationReceiver* receiver)
      : HalfReplica(job, rank, backend), receiver_(*receiver) {}

  // Losses are those of the workers that have the data.
  absl::StatusOr<Losses> Train(const Dataset&, absl::Span<const uint32_t>,
                               const TrainPoint& point) override {
    summed_ = 0;
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const ActivationReceiver::Batch* const received, Ask(point));
      // All batches of the step have been answered.
      if (received == nullptr) break;
      Batch batch;
      batch.rows = received->rows;
      batch.inputs = received->activations.data();
      if (!received->classes.empty()) batch.labels = received->classes.data();
      if (!received->targets.empty()) batch.targets = received->targets.data();
      // The first batch begins the gradient, the others add to it.
      batch.adds = summed_ > 0;
      batch.more = true;
      // As its sender would have computed it: what dropout draws is the sender's.
      TESSERA_ASSIGN_OR_RETURN(
          const LossAndCount loss,
          network_->steps().TrainStep(batch, {job_.seed(), point.step, received->sender.value()}));
      // The sender waits for this gradient: what else there is to compute comes behind the answer.
      TESSERA_ASSIGN_OR_RETURN(const absl::Span<const float> gradient,
                               network_->back().InputGradient());
      receiver_.Answer(loss.loss, gradient);
      network_->back().Finish();
      ++summed_;
    }
    // Only now are all batches in the gradient.
    network_->arrays().FetchGradients();
    return Losses();
  }

 private:
  absl::StatusOr<const ActivationReceiver::Batch*> Ask(const TrainPoint& point) {
    const Waiting waiting(point.waits);
    return receiver_.Next(point.step, point.plan);
  }

  ActivationReceiver& receiver_;
};

}  // namespace

absl::Status HalfReplica::Init(const Recipe& recipe) {
  const LayerSplit& split = *recipe.split;
  const ParameterRange range = split.range(rank_);
  Network::Options options;
  // Halves train on whole minibatches, as the other half waits for all of it.
  options.batch_max = job_.train().batch_size();
  options.fetches_gradients = true;
  options.layers = LayersOf(split, split.is_linear(rank_));
  TESSERA_ASSIGN_OR_RETURN(options.precision, PrecisionOf(job_.train().precision()));
  TESSERA_ASSIGN_OR_RETURN(network_, Network::Create(job_.model(), options, backend_));
  Network::Options evaluation;
  evaluation.batch_max = BatchRowsMax(job_);
  evaluation.evaluates_only = true;
  // A network of its own for evaluations, which only needs memory for one direction.
  TESSERA_ASSIGN_OR_RETURN(whole_, Network::Create(job_.model(), evaluation, backend_));
  const Sharding sharding = ShardingOf(split, static_cast<int>(job_.cluster().servers().count()));
  keys_ = LayerKeys(whole_->shape(), sharding, range);
  // A worker whose step had no batch pushes no entries.
  no_keys_ = LayerKeys(whole_->shape(), sharding, {});
  for (int i = 0; i < split.cut.parameters; ++i) {
    whole_values_.push_back(whole_->arrays().parameter(i));
    const bool is_own = i >= range.begin && i < range.end;
    values_.push_back(is_own ? network_->arrays().parameter(i - range.begin) : absl::Span<float>());
    update_.push_back(is_own ? network_->arrays().gradient(i - range.begin)
                             : absl::Span<const float>());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Learner>> HalfReplica::CreateFront(const v1::Job& job,
                                                                  const Recipe& recipe, Rank rank,
                                                                  Backend* backend,
                                                                  ActivationSender* sender) {
  TESSERA_CHECK(recipe.split && !recipe.split->is_linear(rank));
  auto replica = std::make_unique<FrontReplica>(job, rank, backend, sender);
  TESSERA_RETURN_IF_ERROR(replica->Init(recipe));
  return replica;
}

absl::StatusOr<std::unique_ptr<Learner>> HalfReplica::CreateLinear(const v1::Job& job,
                                                                   const Recipe& recipe, Rank rank,
                                                                   Backend* backend,
                                                                   ActivationReceiver* receiver) {
  TESSERA_CHECK(recipe.split && recipe.split->is_linear(rank));
  auto replica = std::make_unique<LinearReplica>(job, rank, backend, receiver);
  TESSERA_RETURN_IF_ERROR(replica->Init(recipe));
  return replica;
}

absl::StatusOr<int64_t> HalfReplica::MemoryNeeded(const v1::Job& job, const Recipe& recipe,
                                                  int64_t calibration_rows,
                                                  const InputRows& input) {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan whole, PlanOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  const int64_t rows = job.train().batch_size();
  int64_t most = 0;
  for (const bool is_linear : {false, true}) {
    TESSERA_ASSIGN_OR_RETURN(const NetworkPlan half,
                             HalfOf(whole, LayersOf(*recipe.split, is_linear)));
    int64_t bytes = tessera::MemoryNeeded(half, rows, precision, 0, false, false, rows).held_bytes;
    // A gradient that comes; of each sender a batch that waits, its answer, and what is on its way.
    const int64_t crosses = rows * (is_linear ? half.shape.inputs() : half.shape.outputs());
    const int64_t senders = (recipe.split->front_workers + recipe.split->linear_workers - 1) /
                            recipe.split->linear_workers;
    bytes += crosses * static_cast<int64_t>(sizeof(float)) * (is_linear ? 4 * senders : 1);
    most = std::max(most, bytes);
  }
  const NetworkMemory evaluated =
      tessera::MemoryNeeded(whole, BatchRowsMax(job), precision, calibration_rows);
  return most + evaluated.evaluation_bytes + evaluated.evaluation_calibration_bytes +
         BatchRows::MemoryNeeded(job, whole.shape, input);
}

absl::Status HalfReplica::FormUpdate() { return backend_.Finish(); }

absl::Status HalfReplica::AdoptValues() {
  network_->arrays().SendParameters();
  // What comes next is queued behind it.
  return backend_.TakeFailure();
}

absl::Status HalfReplica::Recut(const SubnetPlace&) {
  TESSERA_CHECK(false);  // Halves are nobody's part of a round.
  return absl::OkStatus();
}

absl::Status HalfReplica::BeginTail() {
  TESSERA_CHECK(false);
  return absl::OkStatus();
}

absl::StatusOr<ExchangeResult> HalfReplica::BeginEvaluation(ParameterClient* servers,
                                                            Exchange after, IdleNotice word) {
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read, servers->Read(after, word, whole_values_));
  whole_->arrays().SendParameters();
  // As a whole replica it trains on from what it has read, which no codec has rounded.
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!values_[i].empty()) {
      std::copy(whole_values_[i].begin(), whole_values_[i].end(), values_[i].begin());
    }
  }
  network_->arrays().SendParameters();
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return read;
}

absl::StatusOr<std::vector<float>> HalfReplica::Calibrate(const Dataset& data,
                                                          absl::Span<const uint32_t> rows) {
  return rows_.Calibrate(whole_.get(), data, rows);
}

absl::StatusOr<Scores> HalfReplica::Score(const Dataset& data, absl::Span<const uint32_t> rows,
                                          absl::Span<const float> constants) {
  return rows_.Score(whole_.get(), data, rows, constants);
}

}  // namespace tessera
