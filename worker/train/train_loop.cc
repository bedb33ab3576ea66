#include "worker/train/train_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/layout/layers/layer_kinds.h"

namespace tessera {
namespace {

// Pulls of one round that find it cut otherwise. A cut does not change once its round is open, so
// that the second pull succeeds, or the third where a server had yet to hear of a change.
constexpr int kRecutsMax = 10;

Partition PartitionOf(const v1::Job& job) {
  const absl::StatusOr<Partition> partition = ParsePartition(job.data().partition());
  TESSERA_CHECK(partition.ok());  // The job reader lets no other name through.
  return *partition;
}

}  // namespace

TrainLoop::TrainLoop(Options options, const Datasets* data, Learner* learner,
                     ParameterClient* servers, Coordination* coordination)
    : options_(std::move(options)),
      schedule_(options_.recipe.payload == PayloadKind::kGradient
                    ? RateSchedule()
                    : RateSchedule(options_.job.train().schedule())),
      data_(*data),
      learner_(*learner),
      servers_(*servers),
      coordination_(*coordination),
      order_({PartitionOf(options_.job), options_.job.seed(), data->train.rows(),
              options_.job.train().batch_size(), options_.orders}),
      phases_(options_.before ? options_.before->phases : PhaseTimer(options_.clock)),
      told_phases_(phases_.seconds()),
      reads_rows_(!options_.recipe.split || !options_.recipe.split->is_linear(options_.rank)),
      calibrates_(Calibrates(options_.job.model())),
      step_(options_.first_step),
      epoch_(options_.first_epoch),
      exchange_(options_.first_exchange.value() - 1),
      evaluates_first_(options_.evaluation_due ? 1 : 0),
      warms_up_(options_.first_step < static_cast<uint64_t>(options_.recipe.warmup_steps)),
      checkpoint_number_(options_.checkpoint_number) {}

bool TrainLoop::Finished() const {
  const v1::Train& train = options_.job.train();
  if (train.steps() > 0) return step_ >= static_cast<uint64_t>(train.steps());
  return epoch_ >= static_cast<uint64_t>(train.epochs());
}

uint64_t TrainLoop::StepsLeft() const {
  if (Finished()) return 0;
  const v1::Train& train = options_.job.train();
  if (train.steps() > 0) return static_cast<uint64_t>(train.steps()) - step_;
  const auto steps = static_cast<uint64_t>(cut_.steps);
  return cut_.first_step + steps - step_ +
         (static_cast<uint64_t>(train.epochs()) - epoch_ - 1) * steps;
}

bool TrainLoop::TailIsDue() const {
  return options_.recipe.tail_steps > 0 && learner_.value_keys().subnet.has_value() &&
         !Finished() && StepsLeft() <= static_cast<uint64_t>(options_.recipe.tail_steps);
}

bool TrainLoop::IsLast(Exchange exchange) const {
  const Exchange last = coordination_.drain_exchange();
  return last != Exchange(0) && exchange >= last;
}

TrainProgress TrainLoop::progress() const {
  return {step_,
          exchange_.value(),
          examples_,
          epoch_,
          last_loss_,
          speed_.per_second(),
          place_.has_value() ? speed_.steps() : 0,
          work_,
          beats_,
          traffic(),
          told_phases_};
}

void TrainLoop::Waits::BeginWait() {
  loop_.phases_.Enter(Phase::kWait);
  loop_.Begin(TrainWork::kNothing);
}

void TrainLoop::Waits::EndWait() {
  loop_.phases_.Enter(Phase::kCompute);
  loop_.Begin(TrainWork::kMinibatch);
}

void TrainLoop::Begin(TrainWork work) {
  work_ = work;
  ++beats_;
  coordination_.SetProgress(progress());
}

absl::Status TrainLoop::Run() {
  const absl::Status status = TrainToEnd();
  if (std::exchange(in_flight_, false)) servers_.DropPushPull();
  // Until it trains again, if it does, it waits, but where the job's clock stands for an evaluation.
  if (!status.ok() && phases_.phase() != Phase::kEvaluate) phases_.Enter(Phase::kWait);
  return status;
}

Traffic TrainLoop::traffic() const {
  Traffic sum = servers_.traffic();
  sum.other_payload_bytes += learner_.exchanged_bytes();
  if (options_.before) sum += options_.before->traffic;
  return sum;
}

absl::Status TrainLoop::TrainToEnd() {
  TESSERA_ASSIGN_OR_RETURN(ExchangeResult pulled,
                           servers_.Pull(exchange_, learner_.value_keys(), learner_.values()));
  TESSERA_ASSIGN_OR_RETURN(pulled, FollowCut(exchange_, pulled));
  job_examples_ = pulled.job_examples;
  plan_ = pulled.plan;
  TESSERA_RETURN_IF_ERROR(AdoptValues());
  Tell(pulled);
  AskCores();
  if (options_.resumes) TESSERA_RETURN_IF_ERROR(Resume());
  TESSERA_RETURN_IF_ERROR(coordination_.BeginTraining());
  phases_.Begin(Phase::kCompute);
  TESSERA_RETURN_IF_ERROR(BeginEpoch());
  // It joined when no step was left: it only evaluates with the others.
  if (Finished()) {
    TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/true));
  }
  for (; evaluates_first_ > 0 && !stop_ && !Finished(); --evaluates_first_) {
    TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/false));
  }
  int64_t interval = StepsUntilExchange();
  while (!stop_ && !Leaves() && !Finished()) {
    TESSERA_RETURN_IF_ERROR(TrainStep(since_exchange_ + 1 >= interval || StepsLeft() == 1));
    if (since_exchange_ < interval && !Finished()) continue;
    TESSERA_RETURN_IF_ERROR(DoExchange());
    if (Finished()) {
      TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/true));
      break;
    }
    // Where all make the same exchange they learn of its being the last one while they wait for it;
    // elsewhere only the word that the servers have had counts.
    if (EvaluatesNext()) TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/false));
    // The job may have been found not to end here after all.
    if (!stop_) TESSERA_RETURN_IF_ERROR(SavePutOff(cursor()));
    if (!stop_) AskCores();
    TESSERA_RETURN_IF_ERROR(EndWarmUp());
    interval = StepsUntilExchange();
  }
  if (std::exchange(in_flight_, false)) {
    TESSERA_RETURN_IF_ERROR(servers_.EndPushPull().status());
  }
  phases_.Enter(Phase::kOutside);
  if (options_.store != nullptr && (stop_ || Finished())) {
    // As it was before the evaluation, which is made again where it was not for the end alone.
    if (learner_.exchange_keys() != nullptr) {
      TESSERA_RETURN_IF_ERROR(learner_.EndEvaluation().status());
    }
    TESSERA_RETURN_IF_ERROR(SavePutOff(evaluated_));
    TESSERA_ASSIGN_OR_RETURN(const PrivateState state, private_state());
    options_.store->SaveLast(evaluated_, state);
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::EndWarmUp() {
  const bool is_over = step_ >= static_cast<uint64_t>(options_.recipe.warmup_steps);
  if (!warms_up_ || !is_over || stop_ || stopping_) return absl::OkStatus();
  warms_up_ = false;
  phases_.Enter(Phase::kWait);
  Begin(TrainWork::kNothing);
  TESSERA_RETURN_IF_ERROR(coordination_.EndWarmUp());
  phases_.Enter(Phase::kCompute);
  return absl::OkStatus();
}

WorkerCursor TrainLoop::cursor() const {
  return {progress(), evaluation_due_, loss_sum_, loss_count_};
}

absl::StatusOr<PrivateState> TrainLoop::private_state() {
  TESSERA_ASSIGN_OR_RETURN(PrivateState state, learner_.private_state());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<absl::Span<float>> held_back, servers_.held_back());
  for (size_t p = 0; p < held_back.size(); ++p) {
    state.arrays.push_back({absl::StrCat("residual.", p), held_back[p]});
  }
  if (const absl::Span<float> learned = servers_.learned(); !learned.empty()) {
    state.arrays.push_back({"codec", learned, /*may_lack=*/true});
  }
  return state;
}

absl::Status TrainLoop::SaveIfAsked(const ExchangeResult& result, const WorkerCursor& cursor,
                                    bool evaluates_next) {
  if (options_.store == nullptr || result.checkpoint_number <= checkpoint_number_) {
    return absl::OkStatus();
  }
  checkpoint_number_ = result.checkpoint_number;
  put_off_.emplace(result.checkpoint_number, result.checkpoint_step);
  // Where members advance on their own an evaluation is of later values than the checkpoint.
  const bool waits = calibrates_ && options_.recipe.lockstep && evaluates_next;
  return waits ? absl::OkStatus() : SavePutOff(cursor);
}

absl::Status TrainLoop::Resume() {
  TESSERA_ASSIGN_OR_RETURN(const PrivateState state, private_state());
  TESSERA_ASSIGN_OR_RETURN(const std::optional<WorkerCursor> saved, options_.store->Load(state));
  // What others held back may have been dealt to this one.
  TESSERA_RETURN_IF_ERROR(servers_.AdoptHeldBack());
  holds_back_ = options_.recipe.codecs.holds_back();
  if (!saved.has_value()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(learner_.AdoptPrivateState());
  last_loss_ = saved->progress.train_loss;
  loss_sum_ = saved->loss_sum;
  loss_count_ = saved->loss_count;
  if (!saved->evaluation_due) evaluates_first_ = 0;
  return absl::OkStatus();
}

// Also right for a worker that joined in the middle of an epoch.
absl::Status TrainLoop::BeginEpoch() {
  const Phase before = phases_.Enter(Phase::kWait);
  Begin(TrainWork::kNothing);
  // Epochs get shorter as workers join: one that joins late may begin past the epoch that it was
  // told.
  for (; !Finished(); ++epoch_) {
    TESSERA_ASSIGN_OR_RETURN(cut_, coordination_.BeginEpoch(epoch_, step_));
    const uint64_t end = cut_.first_step + static_cast<uint64_t>(cut_.steps);
    if (step_ < end) break;
    // The others have yet to come to this end. In lockstep they are past it, or expect nobody.
    if (!options_.recipe.lockstep && EvaluatesAfter(epoch_ + 1)) ++evaluates_first_;
    if (epoch_ + 1 == static_cast<uint64_t>(options_.job.train().epochs())) step_ = end;
  }
  phases_.Enter(before);
  return Finished() ? absl::OkStatus() : BeginOrder();
}

absl::Status TrainLoop::BeginOrder() {
  if (!reads_rows_) return absl::OkStatus();
  EpochPlace place;
  place.epoch = epoch_;
  place.rank = options_.rank;
  place.part = cut_.part;
  place.parts = cut_.parts;
  place.rows_total = cut_.rows_total;
  TESSERA_RETURN_IF_ERROR(order_.Begin(place));
  ahead_.Begin();
  if (order_.steps() != cut_.steps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data: worker ", options_.rank.value(), " has ", data_.train.rows(),
        " training rows, which makes ", order_.steps(), " steps an epoch, want ", cut_.steps,
        " as the other workers have, or had when the checkpoint was saved; the training files "
        "differ "
        "(between workers data.partition: local allows that)"));
  }
  return absl::OkStatus();
}

bool TrainLoop::EvaluatesAfter(uint64_t epochs) const {
  const uint64_t every = options_.job.train().evaluate_every();
  return every > 0 && epochs % every == 0;
}

float TrainLoop::Rate() const {
  // The others have done about as much since the pull as this worker.
  const uint64_t parts = static_cast<uint64_t>(std::max<int64_t>(1, cut_.parts));
  const uint64_t own = examples_since_exchange_ + (in_flight_ ? sent_.examples : 0);
  return static_cast<float>(
      schedule_.Factor(job_examples_ + parts * own, parts * options_.job.train().batch_size()));
}

int64_t TrainLoop::StepsUntilExchange() const {
  const int64_t budget = coordination_.step_budget();
  return budget > 0 ? budget : options_.recipe.local_steps;
}

absl::Status TrainLoop::TrainStep(bool last) {
  if (work_ != TrainWork::kMinibatch) Begin(TrainWork::kMinibatch);
  Failpoint("worker.step");
  const uint64_t in_epoch = step_ - cut_.first_step;
  TESSERA_CHECK(in_epoch < static_cast<uint64_t>(cut_.steps));
  next_rows_.clear();
  if (reads_rows_ && in_epoch + 1 < static_cast<uint64_t>(cut_.steps)) {
    const absl::Span<const uint32_t> next = order_.Rows(in_epoch + 1);
    next_rows_.assign(next.begin(), next.end());
  }
  if (reads_rows_) ahead_.Advance(static_cast<int64_t>(in_epoch), epoch_, &order_);
  absl::Span<const uint32_t> rows;
  if (reads_rows_) rows = order_.Rows(in_epoch);
  const absl::Duration begin = options_.clock();
  const double waited_before = phases_.seconds(Phase::kWait);
  const TrainPoint point{step_,   Rate(), last,  next_rows_, /*continues=*/since_exchange_ > 0,
                         &waits_, plan_,  epoch_};
  TESSERA_RETURN_IF_ERROR(Note(learner_.Train(data_.train, rows, point)));
  TESSERA_RETURN_IF_ERROR(data_.train.status());
  if (last) TESSERA_RETURN_IF_ERROR(Note(learner_.EndSteps()));
  const double waited = phases_.seconds(Phase::kWait) - waited_before;
  speed_.Add(absl::ToDoubleSeconds(options_.clock() - begin) - waited);
  ++step_;
  ++since_exchange_;
  // Nothing was learned from a minibatch that is not to be pushed.
  const uint64_t trained = learner_.summed() > 0 ? rows.size() : 0;
  examples_ += trained;
  examples_since_exchange_ += trained;
  told_phases_ = phases_.seconds();
  ++beats_;
  coordination_.SetProgress(progress());
  if (in_epoch + 1 < static_cast<uint64_t>(cut_.steps)) return absl::OkStatus();
  ++epoch_;
  if (EvaluatesAfter(epoch_)) evaluation_due_ = true;
  return Finished() ? absl::OkStatus() : BeginEpoch();
}

absl::Status TrainLoop::Note(const absl::StatusOr<Losses>& losses) {
  TESSERA_RETURN_IF_ERROR(losses.status());
  for (const double loss : *losses) {
    last_loss_ = loss;
    loss_sum_ += loss;
    ++loss_count_;
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::DoExchange() {
  TESSERA_RETURN_IF_ERROR(TakeCores());
  // The last step was not known to be that where an epoch that begins turns out to be over.
  TESSERA_RETURN_IF_ERROR(Note(learner_.EndSteps()));
  TESSERA_RETURN_IF_ERROR(learner_.FormUpdate());
  if (TailIsDue()) TESSERA_RETURN_IF_ERROR(learner_.BeginTail());
  phases_.Enter(Phase::kPull);
  Begin(TrainWork::kNothing);
  if (in_flight_) {
    TESSERA_RETURN_IF_ERROR(EndOverlapped());
    if (Draining()) return GoBackToSent();
  }
  const bool rests = evaluation_due_ || Finished() || Draining() ||
                     (options_.recipe.overlaps && IsLast(exchange_.Next()));
  const bool pushes_subnet = learner_.update_keys().subnet.has_value();
  const bool pulls_subnet = learner_.value_keys().subnet.has_value();
  OutgoingPush push{exchange_.Next(), examples_since_exchange_, rests ? NextRest() : RestWord()};
  push.kind = options_.recipe.subnets && !pushes_subnet ? TailOf(options_.recipe).payload
                                                        : options_.recipe.payload;
  push.whole_next = pushes_subnet && !pulls_subnet;
  const bool is_last =
      Finished() || Draining() || stopping_ || (options_.recipe.lockstep && IsLast(push.exchange));
  push.summed = learner_.summed();
  push.flush = options_.recipe.codecs.flush && is_last && push.summed > 0;
  holds_back_ = options_.recipe.codecs.holds_back() && !push.flush;
  cannot_flush_ = push.summed == 0;
  push.sink = learner_.value_sink();
  if (push.flush && learner_.exchange_keys() != nullptr) learner_.exchange_keys()->PushAll();
  // The last round's subnets go back, and no other is fetched.
  const bool no_more = pulls_subnet && Finished();
  const bool only_pushes = no_more || !learner_.pulls_apart();
  KeySet nothing;
  if (only_pushes) {
    nothing = NoKeys(*learner_.value_keys().subnet,
                     static_cast<int>(learner_.value_keys().slices.size()));
  }
  if (options_.recipe.overlaps && !rests) {
    TESSERA_RETURN_IF_ERROR(servers_.BeginPushPull(push, learner_.update_keys(), learner_.update(),
                                                   learner_.value_keys(), learner_.values()));
    in_flight_ = true;
    sent_ = {push.exchange, push.examples, cursor(), cut_, epoch_};
    since_exchange_ = 0;
    examples_since_exchange_ = 0;
    phases_.Enter(Phase::kCompute);
    return learner_.TrainOn();
  }
  TESSERA_ASSIGN_OR_RETURN(
      ExchangeResult result,
      servers_.PushPull(push, learner_.update_keys(), learner_.update(),
                        only_pushes ? nothing : learner_.value_keys(), learner_.values()));
  NoteExchange(push.exchange, result);
  if (!only_pushes) {
    TESSERA_ASSIGN_OR_RETURN(result, FollowCut(exchange_, result));
    plan_ = std::max(plan_, result.plan);
    TESSERA_RETURN_IF_ERROR(AdoptValues());
    if (learner_.exchange_keys() != nullptr) learner_.exchange_keys()->Advance();
    Tell(result);
    // Nothing comes while an evaluation stands.
    if (!Finished() && !rests) AskCores();
  } else if (!no_more) {
    fetch_due_ = true;
    if (!rests) {
      TESSERA_ASSIGN_OR_RETURN(const ExchangeResult fetched, Fetch());
      result.wait_seconds += fetched.wait_seconds;
    }
  }
  phases_.Enter(Phase::kCompute);
  phases_.Move(Phase::kPull, Phase::kPush, result.push_seconds);
  phases_.Move(Phase::kPull, Phase::kWait, result.wait_seconds);
  since_exchange_ = 0;
  examples_since_exchange_ = 0;
  coordination_.SetProgress(progress());
  return SaveIfAsked(result, cursor(), EvaluatesNext());
}

absl::Status TrainLoop::EndOverlapped() {
  in_flight_ = false;
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult result, servers_.EndPushPull());
  NoteExchange(sent_.exchange, result);
  TESSERA_RETURN_IF_ERROR(learner_.AdoptEarlierValues());
  phases_.Move(Phase::kPull, Phase::kPush, result.push_seconds);
  phases_.Move(Phase::kPull, Phase::kWait, result.wait_seconds);
  WorkerCursor cursor = sent_.cursor;
  cursor.progress.exchange = exchange_.value();
  return SaveIfAsked(result, cursor, /*evaluates_next=*/false);
}

absl::Status TrainLoop::GoBackToSent() {
  const WorkerCursor& cursor = sent_.cursor;
  step_ = cursor.progress.step;
  examples_ = cursor.progress.examples;
  last_loss_ = cursor.progress.train_loss;
  evaluation_due_ = cursor.evaluation_due;
  loss_sum_ = cursor.loss_sum;
  loss_count_ = cursor.loss_count;
  since_exchange_ = 0;
  examples_since_exchange_ = 0;
  Begin(TrainWork::kNothing);
  if (std::exchange(epoch_, sent_.epoch) == sent_.epoch) return absl::OkStatus();
  cut_ = sent_.cut;
  return BeginOrder();
}

void TrainLoop::NoteExchange(Exchange exchange, const ExchangeResult& result) {
  exchange_ = exchange;
  if (IsLogged(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, absl::StrCat("worker: acknowledged exchange=", exchange_.value()));
  }
  job_examples_ = std::max(job_examples_, result.job_examples);
}

absl::StatusOr<ExchangeResult> TrainLoop::Fetch() {
  fetch_due_ = false;
  TESSERA_ASSIGN_OR_RETURN(ExchangeResult pulled,
                           servers_.Pull(exchange_, learner_.value_keys(), learner_.values()));
  TESSERA_ASSIGN_OR_RETURN(pulled, FollowCut(exchange_, pulled));
  job_examples_ = std::max(job_examples_, pulled.job_examples);
  TESSERA_RETURN_IF_ERROR(AdoptValues());
  return pulled;
}

absl::Status TrainLoop::AdoptValues() {
  TESSERA_RETURN_IF_ERROR(learner_.AdoptValues());
  const std::optional<SubnetPlace>& place = learner_.update_keys().subnet;
  const bool same = place.has_value() && place_.has_value()
                        ? place->site == place_->site && place->shares == place_->shares
                        : place.has_value() == place_.has_value();
  if (!same) speed_.Restart();
  place_ = place;
  return absl::OkStatus();
}

absl::StatusOr<ExchangeResult> TrainLoop::FollowCut(Exchange after, ExchangeResult pulled) {
  if (pulled.needs_all) {
    learner_.exchange_keys()->Drop();
    return servers_.Pull(after, learner_.value_keys(), learner_.values());
  }
  for (int recuts = 0; pulled.recut.has_value() || pulled.is_whole; ++recuts) {
    if (recuts == kRecutsMax) {
      return absl::InternalError(absl::StrCat("round ", after.Next().value(), ": cut otherwise ",
                                              recuts, " times in a row, want one cut"));
    }
    if (!pulled.is_whole) {
      TESSERA_RETURN_IF_ERROR(learner_.Recut(*pulled.recut));
    } else if (options_.recipe.tail_steps > 0) {
      TESSERA_RETURN_IF_ERROR(learner_.BeginTail());
    } else {
      return absl::InternalError(absl::StrCat("round ", after.Next().value(),
                                              ": servers say that it is of the whole model, want "
                                              "subnets to the end of this job"));
    }
    absl::StatusOr<ExchangeResult> again =
        servers_.Pull(after, learner_.value_keys(), learner_.values());
    if (!again.ok()) return again;
    again->push_seconds += pulled.push_seconds;
    again->wait_seconds += pulled.wait_seconds;
    again->pull_seconds += pulled.pull_seconds;
    pulled = *std::move(again);
  }
  return pulled;
}

}  // namespace tessera
