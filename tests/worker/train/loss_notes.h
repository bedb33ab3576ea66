// Remembers the loss of each minibatch that another learner trains.
#ifndef TESSERA_TESTS_WORKER_TRAIN_LOSS_NOTES_H_
#define TESSERA_TESTS_WORKER_TRAIN_LOSS_NOTES_H_

#include <vector>

#include "worker/train/forwarding_learner.h"

namespace tessera {

class LossNotes final : public ForwardingLearner {
 public:
  using ForwardingLearner::ForwardingLearner;
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    return Noted(ForwardingLearner::Train(data, rows, point));
  }
  absl::StatusOr<Losses> EndSteps() override { return Noted(ForwardingLearner::EndSteps()); }

  const std::vector<double>& losses() const { return losses_; }

 private:
  absl::StatusOr<Losses> Noted(absl::StatusOr<Losses> known) {
    if (known.ok()) losses_.insert(losses_.end(), known->begin(), known->end());
    return known;
  }

  std::vector<double> losses_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_LOSS_NOTES_H_
