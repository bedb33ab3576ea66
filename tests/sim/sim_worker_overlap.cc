// A simulated worker whose exchanges go on beside training: as TrainLoop.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_worker.h"

namespace tessera {

void SimWorker::TrainOn() {
  sent_ = {ProgressText(), evaluation_due_, step_, epoch_, cut_};
  in_flight_ = true;
  since_exchange_ = 0;
  Train();
}

void SimWorker::EndOverlapped() {
  doing_ = absl::StrCat("waiting for exchange ", exchange_.value());
  waits_for_it_ = !has_come_;
  if (waits_for_it_) return;
  in_flight_ = false;
  has_come_ = false;
  Sent sent = options_.mutation == Mutation::kSavesAhead
                  ? Sent{ProgressText(), evaluation_due_, step_, epoch_, cut_}
                  : sent_;
  SaveIfAsked(std::move(sent.progress), sent.evaluation_due,
              [this] { IsLast(exchange_) ? GoBackToSent() : PushPull(); });
}

void SimWorker::GoBackToSent() {
  step_ = sent_.step;
  epoch_ = sent_.epoch;
  cut_ = sent_.cut;
  evaluation_due_ = sent_.evaluation_due;
  since_exchange_ = 0;
  last_ = Finished();
  Begin(v1::Progress::NOTHING);
  Arrive();
}

}  // namespace tessera
