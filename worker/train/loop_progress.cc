#include "worker/train/loop_progress.h"

#include "common/base/check.h"

namespace tessera {

WorkerCursor LoopProgress::cursor() const {
  WorkerCursor cursor = at;
  TrainProgress& progress = cursor.progress;
  progress.step = walk_.step();
  progress.epoch = walk_.epoch();
  progress.steps_per_second = speed_.per_second();
  progress.speed_steps = place_.has_value() || batch_rows_ > 0 ? speed_.steps() : 0;
  progress.batch_rows = static_cast<uint64_t>(batch_rows_);
  progress.traffic = traffic();
  progress.phases = told_phases_;
  return cursor;
}

Traffic LoopProgress::traffic() const {
  Traffic sum = servers_.traffic();
  sum.other_payload_bytes += learner_.exchanged_bytes();
  sum += traffic_before_;
  return sum;
}

void LoopProgress::Begin(TrainWork work) {
  at.progress.work = work;
  ++at.progress.beats;
  Tell();
}

absl::Status LoopProgress::Note(const absl::StatusOr<Losses>& losses) {
  TESSERA_RETURN_IF_ERROR(losses.status());
  for (const double loss : *losses) {
    at.progress.train_loss = loss;
    at.loss_sum += loss;
    ++at.loss_count;
  }
  return absl::OkStatus();
}

void LoopProgress::BeginStep() {
  if (walk_.cut().batch_rows != batch_rows_) {
    batch_rows_ = walk_.cut().batch_rows;
    speed_.Restart();
  }
  step_begin_ = clock_();
  waited_before_ = phases_.seconds(Phase::kWait);
}

void LoopProgress::EndStep() {
  const double waited = phases_.seconds(Phase::kWait) - waited_before_;
  speed_.Add(absl::ToDoubleSeconds(clock_() - step_begin_) - waited);
  told_phases_ = phases_.seconds();
  ++at.progress.beats;
  Tell();
}

void LoopProgress::SetPlace(const std::optional<SubnetPlace>& place) {
  const bool same = place.has_value() && place_.has_value()
                        ? place->site == place_->site && place->shares == place_->shares
                        : place.has_value() == place_.has_value();
  if (!same) speed_.Restart();
  place_ = place;
}

void LoopProgress::BeginWait() {
  phases_.Enter(Phase::kWait);
  Begin(TrainWork::kNothing);
}

void LoopProgress::EndWait() {
  phases_.Enter(Phase::kCompute);
  Begin(TrainWork::kMinibatch);
}

}  // namespace tessera
