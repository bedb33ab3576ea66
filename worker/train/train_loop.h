// One worker's training, from its first pull to its last evaluation.
//
//   pull -> [ J minibatches -> push and pull ] ... -> evaluation where one is due -> ...
//
// Where exchanges overlap with training, push and pull go on beside the next J minibatches, and end before
// the next ones begin. The last one before an evaluation, or the end, is waited for. What was trained
// beside the last exchange of a job that is drained is dropped.
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
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "common/rule/schedule.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/order.h"
#include "worker/data/order_cache.h"
#include "worker/exchange/parameter_client.h"
#include "worker/train/coordination.h"
#include "worker/train/learner.h"
#include "worker/train/phase_timer.h"
#include "worker/train/rows_ahead.h"
#include "worker/train/step_speed.h"
#include "worker/train/worker_state.h"

namespace tessera {

// What a worker did before the job went back to a checkpoint: the time from then on is its, too.
struct LifeBefore {
  PhaseTimer phases;
  Traffic traffic;
};

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
  void Stop() { stopping_ = true; }
  // So, but pushes nothing more: this worker is no member. Any thread.
  void Abandon() {
    abandons_ = true;
    stopping_ = true;
  }

  // Valid after Run; in its thread also meanwhile. Those of the life before are in the first two.
  const PhaseTimer& phases() const { return phases_; }
  Traffic traffic() const;
  uint64_t steps() const { return step_; }
  uint64_t examples() const { return examples_; }
  // After Run: Stop ended it before its work was done.
  bool left_early() const { return !stop_ && !Finished() && stopping_; }
  // After Run: what its codec holds back goes nowhere, as Stop ended it, or its last minibatch came to nothing and
  // could not bring it.
  bool left_residual() const {
    const bool is_over = stop_ || Finished();
    return holds_back_ &&
           (is_over ? options_.recipe.codecs.flush && cannot_flush_ : stopping_.load());
  }

 private:
  // A minibatch that waits for others is no work of this worker's.
  class Waits final : public TrainWaits {
   public:
    explicit Waits(TrainLoop* loop) : loop_(*loop) {}
    void BeginWait() override;
    void EndWait() override;

   private:
    TrainLoop& loop_;
  };

  absl::Status BeginEpoch();
  // `last`: an exchange follows.
  absl::Status TrainStep(bool last);
  absl::Status Note(const absl::StatusOr<Losses>& losses);
  absl::Status DoExchange();
  void NoteExchange(Exchange exchange, const ExchangeResult& result);
  // That goes on beside training. Ends it, once update() has been formed.
  absl::Status EndOverlapped();
  // What was trained since it began is of no use.
  absl::Status GoBackToSent();
  absl::Status TrainToEnd();
  absl::Status BeginOrder();
  // Pulls again for as long as `pulled` says that the round is cut otherwise.
  absl::StatusOr<ExchangeResult> FollowCut(Exchange after, ExchangeResult pulled);
  // What the servers' answer says of cores.
  void Tell(const ExchangeResult& pulled);
  // For the one that the next exchange wants, if it does. Again: nothing.
  void AskCores();
  absl::Status TakeCores();
  // Where values are pulled apart from the push: those that follow the last exchange.
  absl::StatusOr<ExchangeResult> Fetch();
  // What the rate of the next minibatch is multiplied by.
  float Rate() const;
  int64_t StepsUntilExchange() const;
  absl::Status Evaluate(bool last);
  // At the exchange boundary at or after the warm-up's last step, once.
  absl::Status EndWarmUp();
  RestWord NextRest() { return rest_ = {rest_.number + 1, true}; }
  absl::StatusOr<std::optional<EvaluationResult>> EvaluateOnce(
      const Coordination::Arrival& arrival);
  bool Finished() const;
  // It was told to, and has nothing to bring before.
  bool Leaves() const {
    return stopping_ &&
           (abandons_ || !options_.recipe.codecs.flush || !holds_back_ || cannot_flush_);
  }
  // Minibatches that are left, if members stay as they are. The same for all where exchanges are.
  uint64_t StepsLeft() const;
  bool TailIsDue() const;
  bool EvaluatesAfter(uint64_t epochs) const;
  // The job is drained, and ends with this exchange, or has before.
  bool IsLast(Exchange exchange) const;
  bool Draining() const { return IsLast(exchange_); }
  TrainProgress progress() const;
  // From now on the loop is at this; whoever watches over it is told.
  void Begin(TrainWork work);
  absl::Status AdoptValues();
  WorkerCursor cursor() const;
  // The learner's, and what the codec holds back.
  absl::StatusOr<PrivateState> private_state();
  // The servers' answer may say that it is in a checkpoint. `cursor`: where the loop was when it had
  // trained what they were sent.
  // `evaluates_next`: an evaluation of just these values comes next, in which case the file is put off.
  absl::Status SaveIfAsked(const ExchangeResult& result, const WorkerCursor& cursor,
                           bool evaluates_next);
  // An evaluation of the values that the last exchange brought is next.
  bool EvaluatesNext() const {
    return Finished() || rest_.rests || (options_.recipe.lockstep && Draining());
  }
  // What SaveIfAsked has put off, if it has.
  absl::Status SavePutOff(const WorkerCursor& cursor);
  absl::Status Resume();

  const Options options_;
  // Of the worker's own optimizer, where it has one.
  const RateSchedule schedule_;
  const Datasets& data_;
  Learner& learner_;
  ParameterClient& servers_;
  Coordination& coordination_;
  EpochOrder order_;
  RowsAhead ahead_{&data_.train};
  std::vector<uint32_t> next_rows_;
  PhaseTimer phases_;
  // When the last minibatch ended: within an exchange time is counted first as one phase, then as another.
  PhaseSeconds told_phases_;
  Waits waits_{this};
  const bool reads_rows_;  // minibatches are of its own rows
  const bool calibrates_;  // the model has a batch norm
  std::atomic<bool> stopping_{false};
  std::atomic<bool> abandons_{false};

  uint64_t step_ = 0;  // minibatches behind this worker, those before it joined included
  uint64_t epoch_ = 0;
  EpochCut cut_;
  Exchange exchange_;    // last one done
  int evaluates_first_;  // so often before the first step
  bool warms_up_;        // it has yet to come to the end of its warm-up
  int64_t since_exchange_ = 0;
  uint64_t examples_ = 0;
  uint64_t examples_since_exchange_ = 0;
  uint64_t job_examples_ = 0;  // behind the values last pulled
  Generation plan_;            // the newest of those that exchanges have brought
  StepSpeed speed_;
  TrainWork work_ = TrainWork::kNothing;
  uint64_t beats_ = 0;
  std::optional<SubnetPlace> place_;  // of the subnet that is trained
  bool evaluation_due_ = false;
  bool cores_due_ = false;  // asked for
  bool fetch_due_ = false;  // after the evaluation
  RestWord rest_;           // the last word to the servers
  bool stop_ = false;
  bool holds_back_ = false;    // the last push has left something
  bool cannot_flush_ = false;  // the last one had nothing to push
  double loss_sum_ = 0;
  uint64_t loss_count_ = 0;
  std::optional<double> last_loss_;
  // The exchange that goes on, or ended last, beside training, and where the loop was when it began.
  struct Overlapped {
    Exchange exchange;
    uint64_t examples = 0;
    WorkerCursor cursor;
    EpochCut cut;
    uint64_t epoch = 0;
  };
  Overlapped sent_;
  bool in_flight_ = false;
  WorkerCursor evaluated_;          // at the last evaluation
  uint64_t checkpoint_number_ = 0;  // the last one that this worker had to do with
  // The number and the folder's step of one that is written after the evaluation, which finds the batch norms'
  // constants of its very model.
  std::optional<std::pair<uint64_t, uint64_t>> put_off_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_TRAIN_LOOP_H_
