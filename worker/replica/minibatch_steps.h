// Training steps of a network on rows of a data set, with the next batch on its way meanwhile.
#ifndef TESSERA_WORKER_REPLICA_MINIBATCH_STEPS_H_
#define TESSERA_WORKER_REPLICA_MINIBATCH_STEPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/dataset.h"
#include "worker/model/gradient_clip.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"
#include "worker/replica/batch_rows.h"
#include "worker/train/learner.h"

namespace tessera {

// Everything of a step is queued, and the next batch is sent, before the host waits for anything, which
// is the loss of the step before: a device that works on its own is never without work while there are
// batches. Where the host does the arithmetic itself each step is ended before the next one. The same
// goes for the pieces of a minibatch (train.micro_batch), whose gradients add up before the optimizer's
// step.
//
// One thread, the network's.
class MinibatchSteps {
 public:
  // `rows` outlives it.
  explicit MinibatchSteps(BatchRows* rows) : rows_(*rows) {}

  // The gradient of each minibatch from here on is clipped, before the optimizer's step, if `clip` is not null; it
  // outlives this. Then no work follows gradients.
  void Clip(GradientClip* clip) { clip_ = clip; }

  // One minibatch on `rows` of `data`, in pieces of at most BatchRows::piece_rows; `optimizer` may be
  // null. With `work`, where the network takes it, that has the optimizer step each parameter. Returns
  // as Learner::Train. Codes as TrainingSteps::BeginStep.
  absl::StatusOr<Losses> Run(Network* network, LocalOptimizer* optimizer, const Dataset& data,
                             absl::Span<const uint32_t> rows, const TrainPoint& point,
                             const StepKey& key, const Update& update,
                             GradientWork* work = nullptr);
  // Waits until all losses are known, as Learner::EndSteps.
  absl::StatusOr<Losses> End(Network* network);

 private:
  // Rows of `minibatch` from `first` on.
  struct Piece {
    const Dataset* data = nullptr;
    absl::Span<const uint32_t> minibatch;
    size_t first = 0;
    uint64_t epoch = 0;
  };
  absl::Span<const uint32_t> RowsOf(const Piece& piece) const;
  Batch Fill(const Piece& piece, Network* network);
  bool IsAhead(const Piece& piece) const;
  absl::Status SendAhead(const Piece& piece, Network* network);
  // Ends steps until no more than `begun` are left, and adds the losses of those that are their minibatch's last.
  static absl::Status EndAllBut(int begun, Network* network, Losses* losses);

  BatchRows& rows_;
  GradientClip* clip_ = nullptr;
  // What the network has been sent ahead, if it has.
  const Dataset* ahead_data_ = nullptr;
  size_t ahead_first_ = 0;
  uint64_t ahead_epoch_ = 0;
  size_t ahead_minibatch_rows_ = 0;
  std::vector<uint32_t> ahead_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_MINIBATCH_STEPS_H_
