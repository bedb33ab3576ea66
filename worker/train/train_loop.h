// One worker's training, from its first pull to its last evaluation.
//
//   pull -> [ J minibatches -> push and pull ] ... -> evaluation where one is due -> ...
//
// Where exchanges overlap with training, push and pull go on beside the next J minibatches, and end before
// the next ones begin; that of a fragment ends so many minibatches later as the job says. The last one
// before an evaluation, or the end, is waited for. What was trained beside the last exchange of a job that
// is drained is dropped.
//
// Where exchanges are of subnets, a pull may say that the round is cut otherwise than this worker
// thought; it is then repeated with the right cut. Where such a job ends on the whole model, all
// members change over at the same exchange: the first after which few enough minibatches are left. One
// that joins later is told by its first pull.
//
// It never knows a transport: values and updates go through ParameterClient, everything that
// workers do together through Coordination. Nor does it know a clock or what is computed, so that
// a simulation runs the very same loop.
#ifndef TESSERA_WORKER_TRAIN_TRAIN_LOOP_H_
#define TESSERA_WORKER_TRAIN_TRAIN_LOOP_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "common/rule/schedule.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/order_cache.h"
#include "worker/exchange/parameter_client.h"
#include "worker/train/coordination.h"
#include "worker/train/epoch_walk.h"
#include "worker/train/learner.h"
#include "worker/train/learner_values.h"
#include "worker/train/loop_progress.h"
#include "worker/train/phase_timer.h"
#include "worker/train/state_keeper.h"
#include "worker/train/worker_evaluation.h"
#include "worker/train/worker_state.h"

namespace tessera {

class TrainLoop {
 public:
  struct Options {
    v1::Job job;
    Recipe recipe;
    Rank rank;
    // Where this worker begins; not 1, 0, 0 for one that joined a running job.
    Exchange first_exchange{1};
    uint64_t first_step = 0;
    uint64_t first_epoch = 0;
    Clock clock = SteadyClock();
    // Where several loops live in one process, they share sorted orders of rows here.
    OrderCache* orders = nullptr;
    // Where checkpoints are kept; nullptr: nowhere.
    WorkerStore* store = nullptr;
    // The job goes on from a checkpoint, in which this worker may have saved its state.
    bool resumes = false;
    // And an evaluation was due there, to those who saved no other word of themselves.
    bool evaluation_due = false;
    // Checkpoints up to this number are not this worker's to write.
    uint64_t checkpoint_number = 0;
    std::optional<LifeBefore> before = std::nullopt;
  };

  // All outlive the loop.
  TrainLoop(Options options, const Datasets* data, Learner* learner, ParameterClient* servers,
            Coordination* coordination);

  // Trains to the end of the job. Returns the first error; the worker is of no use after one.
  absl::Status Run();
  // Leaves the loop after the exchange in progress; where the job has its last push bring what was held back,
  // after one that does. Any thread.
  void Stop() {
    Ending none = Ending::kNone;
    ending_.compare_exchange_strong(none, Ending::kStops);
  }
  // Leaves like Stop, but pushes nothing more: this worker is no member. Any thread.
  void Abandon() { ending_ = Ending::kAbandons; }

  // Valid after Run; in its thread also meanwhile. Those of the life before are in the first two.
  const PhaseTimer& phases() const { return progress_.phases(); }
  Traffic traffic() const { return progress_.traffic(); }
  uint64_t steps() const { return walk_.step(); }
  uint64_t examples() const { return progress_.at.progress.examples; }
  // After Run: Stop ended it before its work was done.
  bool left_early() const { return !is_over() && is_stopping(); }
  // After Run: what its codec holds back goes nowhere, as Stop ended it, or its last minibatch came to nothing and
  // could not bring it.
  bool left_residual() const {
    return is_over() ? options_.recipe.codecs.flush && residual_ == Residual::kStuck
                     : residual_ != Residual::kNone && is_stopping();
  }

 private:
  enum class Ending { kNone, kStops, kAbandons };
  // What the last push has left with the codec. kStuck: there was nothing to push, and so no way to bring it.
  enum class Residual { kNone, kHeld, kStuck };
  // What was trained since the last exchange.
  struct Trained {
    int64_t steps = 0;
    uint64_t examples = 0;
  };
  // An exchange that goes on beside training, and where the loop was when it began.
  struct Overlapped {
    Exchange exchange;
    uint64_t examples = 0;
    WorkerCursor cursor;
    EpochWalk::Place place;
  };

  absl::Status TrainToEnd();
  absl::Status Resume();
  absl::Status BeginEpoch();
  // `last`: an exchange follows.
  absl::Status TrainStep(bool last);
  absl::Status DoExchange();
  // The next push, of what update() is.
  OutgoingPush MakePush(bool rests);
  void NoteExchange(Exchange exchange, const ExchangeResult& result);
  // Ends the exchange that goes on beside training, once update() has been formed.
  absl::Status EndOverlapped(const Overlapped& sent);
  // Ends that of a fragment once `delay` minibatches have been computed beside it. True: the job is drained and ends
  // with it, and what was trained since is dropped.
  absl::StatusOr<bool> TakeUpEarly();
  // What was trained since it began is of no use.
  absl::Status GoBackTo(const Overlapped& sent);
  // What the rate of the next minibatch is multiplied by.
  float Rate() const;
  int64_t StepsUntilExchange() const;
  absl::Status Evaluate(bool last);
  // At the exchange boundary at or after the warm-up's last step, once.
  absl::Status EndWarmUp();

  // The last exchange that was made.
  Exchange exchange() const { return Exchange(progress_.at.progress.exchange); }
  bool Finished() const { return walk_.Finished(); }
  bool is_over() const { return stop_ || Finished(); }
  bool is_stopping() const { return ending_ != Ending::kNone; }
  // It was told to leave, and has nothing to bring before.
  bool Leaves() const {
    return is_stopping() && (ending_ == Ending::kAbandons || !options_.recipe.codecs.flush ||
                             residual_ != Residual::kHeld);
  }
  bool TailIsDue() const;
  // The job is drained, and ends with this exchange, or has before.
  bool IsLast(Exchange exchange) const;
  bool Draining() const { return IsLast(exchange()); }
  // An evaluation of the values that the last exchange brought is next.
  bool EvaluatesNext() const {
    return Finished() || evaluation_.rests() || (options_.recipe.lockstep && Draining());
  }

  const Options options_;
  // Of the worker's own optimizer, where it has one.
  const RateSchedule schedule_;
  Learner& learner_;
  ParameterClient& servers_;
  Coordination& coordination_;
  EpochWalk walk_;
  LoopProgress progress_;
  LearnerValues values_;
  WorkerEvaluation evaluation_;
  StateKeeper states_;
  std::atomic<Ending> ending_{Ending::kNone};

  int evaluates_first_;  // so often before the first step
  bool warms_up_;        // it has yet to come to the end of its warm-up
  bool stop_ = false;    // an evaluation has ended the job
  Residual residual_ = Residual::kNone;
  Trained trained_;
  std::optional<Overlapped> in_flight_;
  bool is_taken_up_ = false;  // since the last minibatch, of the exchange that went on beside it
  WorkerCursor evaluated_;    // at the last evaluation
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_TRAIN_LOOP_H_
