#include "worker/train/train_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"

namespace tessera {

TrainLoop::TrainLoop(Options options, const Datasets* data, Learner* learner,
                     ParameterClient* servers, Coordination* coordination)
    : options_(std::move(options)),
      schedule_(options_.recipe.payload == PayloadKind::kGradient
                    ? RateSchedule()
                    : RateSchedule(options_.job.train().schedule())),
      learner_(*learner),
      servers_(*servers),
      coordination_(*coordination),
      walk_(options_.job, options_.recipe, options_.rank,
            {options_.first_step, options_.first_epoch, EpochCut()}, options_.orders, &data->train,
            coordination),
      progress_(options_.clock, options_.before, &walk_, learner, servers, coordination),
      values_(options_.recipe.tail_steps > 0, learner, servers, &progress_),
      evaluation_(options_.job, options_.recipe, data, learner, servers, coordination, &progress_),
      states_(options_.store, options_.checkpoint_number, learner, servers),
      evaluates_first_(options_.evaluation_due ? 1 : 0),
      warms_up_(options_.first_step < static_cast<uint64_t>(options_.recipe.warmup_steps)) {
  progress_.at.progress.exchange = options_.first_exchange.value() - 1;
}

bool TrainLoop::TailIsDue() const {
  return options_.recipe.tail_steps > 0 && learner_.value_keys().subnet.has_value() &&
         !Finished() && walk_.StepsLeft() <= static_cast<uint64_t>(options_.recipe.tail_steps);
}

bool TrainLoop::IsLast(Exchange exchange) const {
  const Exchange last = coordination_.drain_exchange();
  return last != Exchange(0) && exchange >= last;
}

absl::Status TrainLoop::Run() {
  const absl::Status status = TrainToEnd();
  if (in_flight_.has_value()) servers_.DropPushPull();
  in_flight_.reset();
  // Until it trains again, if it does, it waits, but where the job's clock stands for an evaluation.
  PhaseTimer& phases = progress_.phases();
  if (!status.ok() && phases.phase() != Phase::kEvaluate) phases.Enter(Phase::kWait);
  return status;
}

absl::Status TrainLoop::TrainToEnd() {
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult pulled, values_.Fetch(exchange()));
  values_.NotePlan(pulled.plan);
  values_.Tell(pulled);
  values_.AskCores();
  if (options_.resumes) TESSERA_RETURN_IF_ERROR(Resume());
  TESSERA_RETURN_IF_ERROR(coordination_.BeginTraining());
  progress_.phases().Begin(Phase::kCompute);
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
    TESSERA_RETURN_IF_ERROR(TrainStep(trained_.steps + 1 >= interval || walk_.StepsLeft() == 1));
    TESSERA_ASSIGN_OR_RETURN(const bool has_gone_back, TakeUpEarly());
    if (!has_gone_back) {
      if (trained_.steps < interval && !Finished()) continue;
      TESSERA_RETURN_IF_ERROR(DoExchange());
    }
    if (Finished()) {
      TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/true));
      break;
    }
    // Where all make the same exchange they learn of its being the last one while they wait for it;
    // elsewhere only the word that the servers have had counts.
    if (EvaluatesNext()) TESSERA_RETURN_IF_ERROR(Evaluate(/*last=*/false));
    // The job may have been found not to end here after all.
    if (!stop_) TESSERA_RETURN_IF_ERROR(states_.SavePutOff(progress_.cursor()));
    if (!stop_) values_.AskCores();
    TESSERA_RETURN_IF_ERROR(EndWarmUp());
    interval = StepsUntilExchange();
  }
  if (in_flight_.has_value()) {
    in_flight_.reset();
    TESSERA_RETURN_IF_ERROR(servers_.EndPushPull().status());
  }
  progress_.phases().Enter(Phase::kOutside);
  return is_over() ? states_.SaveLast(evaluated_) : absl::OkStatus();
}

absl::Status TrainLoop::EndWarmUp() {
  const bool is_due = walk_.step() >= static_cast<uint64_t>(options_.recipe.warmup_steps);
  if (!warms_up_ || !is_due || stop_ || is_stopping()) return absl::OkStatus();
  warms_up_ = false;
  progress_.BeginWait();
  TESSERA_RETURN_IF_ERROR(coordination_.EndWarmUp());
  progress_.phases().Enter(Phase::kCompute);
  return absl::OkStatus();
}

absl::Status TrainLoop::Resume() {
  TESSERA_ASSIGN_OR_RETURN(const std::optional<WorkerCursor> saved, states_.Load());
  residual_ = options_.recipe.codecs.holds_back() ? Residual::kHeld : Residual::kNone;
  if (!saved.has_value()) return absl::OkStatus();
  WorkerCursor& at = progress_.at;
  at.progress.train_loss = saved->progress.train_loss;
  at.loss_sum = saved->loss_sum;
  at.loss_count = saved->loss_count;
  if (!saved->evaluation_due) evaluates_first_ = 0;
  return absl::OkStatus();
}

absl::Status TrainLoop::BeginEpoch() {
  const Phase before = progress_.phases().phase();
  progress_.BeginWait();
  TESSERA_ASSIGN_OR_RETURN(const int missed, walk_.BeginEpoch());
  evaluates_first_ += missed;
  progress_.phases().Enter(before);
  return Finished() ? absl::OkStatus() : walk_.BeginOrder();
}

float TrainLoop::Rate() const {
  // The others have done about as much since the pull as this worker.
  const EpochCut& cut = walk_.cut();
  const uint64_t parts = static_cast<uint64_t>(std::max<int64_t>(1, cut.parts));
  const uint64_t of_step = parts * options_.job.train().batch_size();
  const uint64_t own = trained_.examples + (in_flight_ ? in_flight_->examples : 0);
  const uint64_t of_all = cut.batch_rows > 0 ? own / cut.batch_rows * of_step : parts * own;
  return static_cast<float>(schedule_.Factor(values_.job_examples() + of_all, of_step));
}

int64_t TrainLoop::StepsUntilExchange() const {
  const int64_t budget = coordination_.step_budget();
  return budget > 0 ? budget : options_.recipe.local_steps;
}

absl::Status TrainLoop::TrainStep(bool last) {
  if (!progress_.is_at(TrainWork::kMinibatch)) progress_.Begin(TrainWork::kMinibatch);
  Failpoint("worker.step");
  const absl::Span<const uint32_t> next = walk_.NextRows();
  const absl::Span<const uint32_t> rows = walk_.Rows();
  progress_.BeginStep();
  // Parameters that were taken up in between are not those that the last minibatch has left.
  const bool continues = trained_.steps > 0 && !std::exchange(is_taken_up_, false);
  const TrainPoint point{walk_.step(), Rate(),     last,           next,
                         continues,    &progress_, values_.plan(), walk_.epoch()};
  TESSERA_RETURN_IF_ERROR(progress_.Note(learner_.Train(walk_.data(), rows, point)));
  TESSERA_RETURN_IF_ERROR(walk_.data().status());
  if (last) TESSERA_RETURN_IF_ERROR(progress_.Note(learner_.EndSteps()));
  // Nothing was learned from a minibatch that is not to be pushed.
  const uint64_t learned = learner_.summed() > 0 ? learner_.examples(rows.size()) : 0;
  const bool ends_epoch = walk_.EndStep();
  ++trained_.steps;
  trained_.examples += learned;
  progress_.at.progress.examples += learned;
  progress_.EndStep();
  if (!ends_epoch) return absl::OkStatus();
  walk_.EndEpoch();
  if (walk_.EvaluatesAfter(walk_.epoch())) progress_.at.evaluation_due = true;
  return Finished() ? absl::OkStatus() : BeginEpoch();
}

OutgoingPush TrainLoop::MakePush(bool rests) {
  const Recipe& recipe = options_.recipe;
  const bool pushes_subnet = learner_.update_keys().subnet.has_value();
  OutgoingPush push{exchange().Next(), trained_.examples,
                    rests ? evaluation_.NextRest() : IdleNotice()};
  push.kind = recipe.subnets && !pushes_subnet ? TailOf(recipe).payload : recipe.payload;
  push.whole_next = pushes_subnet && !learner_.value_keys().subnet.has_value();
  const bool is_last =
      Finished() || Draining() || is_stopping() || (recipe.lockstep && IsLast(push.exchange));
  push.summed = learner_.summed();
  push.flush = recipe.codecs.flush && is_last && push.summed > 0;
  residual_ = Residual::kNone;
  if (recipe.codecs.holds_back() && !push.flush) {
    residual_ = push.summed > 0 ? Residual::kHeld : Residual::kStuck;
  }
  push.sink = learner_.value_sink();
  if (push.flush && learner_.exchange_keys() != nullptr) learner_.exchange_keys()->PushAll();
  return push;
}

absl::Status TrainLoop::DoExchange() {
  TESSERA_RETURN_IF_ERROR(values_.TakeCores());
  // The last step was not known to be that where an epoch that begins turns out to be over.
  TESSERA_RETURN_IF_ERROR(progress_.Note(learner_.EndSteps()));
  TESSERA_RETURN_IF_ERROR(learner_.FormUpdate());
  if (TailIsDue()) TESSERA_RETURN_IF_ERROR(learner_.BeginTail());
  PhaseTimer& phases = progress_.phases();
  phases.Enter(Phase::kPull);
  progress_.Begin(TrainWork::kNothing);
  if (in_flight_.has_value()) {
    const Overlapped sent = *std::exchange(in_flight_, std::nullopt);
    TESSERA_RETURN_IF_ERROR(EndOverlapped(sent));
    if (Draining()) return GoBackTo(sent);
  }
  const bool rests = progress_.at.evaluation_due || Finished() || Draining() ||
                     (options_.recipe.overlaps && IsLast(exchange().Next()));
  const OutgoingPush push = MakePush(rests);
  // The last round's subnets go back, and no other is fetched.
  const bool no_more = learner_.value_keys().subnet.has_value() && Finished();
  const bool only_pushes = no_more || !learner_.pulls_apart();
  KeySet nothing;
  if (only_pushes) {
    nothing = NoKeys(*learner_.value_keys().subnet,
                     static_cast<int>(learner_.value_keys().slices.size()));
  }
  if (options_.recipe.overlaps && !rests) {
    TESSERA_RETURN_IF_ERROR(servers_.BeginPushPull(push, learner_.update_keys(), learner_.update(),
                                                   learner_.value_keys(), learner_.values()));
    in_flight_ = Overlapped{push.exchange, push.examples, progress_.cursor(), walk_.place()};
    trained_ = Trained();
    phases.Enter(Phase::kCompute);
    return learner_.TrainOn();
  }
  TESSERA_ASSIGN_OR_RETURN(
      ExchangeResult result,
      servers_.PushPull(push, learner_.update_keys(), learner_.update(),
                        only_pushes ? nothing : learner_.value_keys(), learner_.values()));
  NoteExchange(push.exchange, result);
  if (!only_pushes) {
    TESSERA_ASSIGN_OR_RETURN(result, values_.FollowCut(exchange(), result));
    values_.NotePlan(result.plan);
    TESSERA_RETURN_IF_ERROR(values_.Adopt());
    if (learner_.exchange_keys() != nullptr) learner_.exchange_keys()->Advance();
    values_.Tell(result);
    // Nothing comes while an evaluation stands.
    if (!Finished() && !rests) values_.AskCores();
  } else if (!no_more) {
    values_.SetFetchDue();
    if (!rests) {
      TESSERA_ASSIGN_OR_RETURN(const ExchangeResult fetched, values_.Fetch(exchange()));
      result.wait_seconds += fetched.wait_seconds;
    }
  }
  phases.Enter(Phase::kCompute);
  phases.Move(Phase::kPull, Phase::kPush, result.push_seconds);
  phases.Move(Phase::kPull, Phase::kWait, result.wait_seconds);
  trained_ = Trained();
  progress_.Tell();
  // Where members advance on their own an evaluation is of later values than the checkpoint.
  const bool waits = evaluation_.calibrates() && options_.recipe.lockstep && EvaluatesNext();
  return states_.OnExchange(result, progress_.cursor(), waits);
}

absl::StatusOr<bool> TrainLoop::TakeUpEarly() {
  const std::optional<FragmentTurns>& fragments = options_.recipe.fragments;
  if (!fragments || !in_flight_.has_value() || trained_.steps < fragments->delay) return false;
  // The step that was queued last is of the values that it is about to replace.
  TESSERA_RETURN_IF_ERROR(progress_.Note(learner_.EndSteps()));
  PhaseTimer& phases = progress_.phases();
  phases.Enter(Phase::kPull);
  progress_.Begin(TrainWork::kNothing);
  const Overlapped sent = *std::exchange(in_flight_, std::nullopt);
  TESSERA_RETURN_IF_ERROR(EndOverlapped(sent));
  phases.Enter(Phase::kCompute);
  is_taken_up_ = true;
  if (!Draining()) return false;
  TESSERA_RETURN_IF_ERROR(GoBackTo(sent));
  return true;
}

absl::Status TrainLoop::EndOverlapped(const Overlapped& sent) {
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult result, servers_.EndPushPull());
  NoteExchange(sent.exchange, result);
  TESSERA_RETURN_IF_ERROR(learner_.AdoptEarlierValues());
  PhaseTimer& phases = progress_.phases();
  phases.Move(Phase::kPull, Phase::kPush, result.push_seconds);
  phases.Move(Phase::kPull, Phase::kWait, result.wait_seconds);
  WorkerCursor cursor = sent.cursor;
  cursor.progress.exchange = sent.exchange.value();
  return states_.OnExchange(result, cursor, /*waits=*/false);
}

absl::Status TrainLoop::GoBackTo(const Overlapped& sent) {
  WorkerCursor at = sent.cursor;
  at.progress.exchange = sent.exchange.value();
  at.progress.beats = progress_.at.progress.beats;
  progress_.at = std::move(at);
  trained_ = Trained();
  TESSERA_RETURN_IF_ERROR(walk_.GoBackTo(sent.place));
  progress_.Begin(TrainWork::kNothing);
  return absl::OkStatus();
}

void TrainLoop::NoteExchange(Exchange exchange, const ExchangeResult& result) {
  progress_.at.progress.exchange = exchange.value();
  if (IsLogged(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, absl::StrCat("worker: acknowledged exchange=", exchange.value()));
  }
  values_.NoteExamples(result.job_examples);
}

absl::Status TrainLoop::Evaluate(bool last) {
  WorkerCursor& at = progress_.at;
  evaluated_ = progress_.cursor();
  progress_.Begin(TrainWork::kNothing);
  const Coordination::Arrival arrival{progress_.cursor().progress, at.loss_sum, at.loss_count,
                                      last};
  TESSERA_ASSIGN_OR_RETURN(WorkerEvaluation::Outcome outcome,
                           evaluation_.Run(arrival, exchange(), walk_.cut()));
  values_.NoteExamples(outcome.job_examples);
  evaluated_.norm_constants = std::move(outcome.norm_constants);
  stop_ = outcome.result.stop;
  at.loss_sum = 0;
  at.loss_count = 0;
  at.evaluation_due = false;
  progress_.phases().Enter(Phase::kPull);
  if (!stop_ && !Finished()) {
    TESSERA_ASSIGN_OR_RETURN(const bool pulls_again, learner_.EndEvaluation());
    TESSERA_RETURN_IF_ERROR(states_.SavePutOff(evaluated_));
    if (pulls_again || values_.is_fetch_due()) {
      TESSERA_RETURN_IF_ERROR(values_.Fetch(exchange()).status());
    }
  }
  progress_.phases().Enter(Phase::kCompute);
  return absl::OkStatus();
}

}  // namespace tessera
