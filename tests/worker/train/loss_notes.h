// Remembers what another learner is asked for, and the loss of each minibatch that it trains.
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
    rates_.push_back(point.rate);
    return Noted(ForwardingLearner::Train(data, rows, point));
  }
  absl::StatusOr<Losses> EndSteps() override { return Noted(ForwardingLearner::EndSteps()); }

  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override {
    ++calibrations_;
    calibrated_.assign(rows.begin(), rows.end());
    return ForwardingLearner::Calibrate(data, rows);
  }

  const std::vector<double>& losses() const { return losses_; }
  // What each minibatch's learning rate was multiplied by.
  const std::vector<float>& rates() const { return rates_; }
  int calibrations() const { return calibrations_; }
  // The rows of the last calibration.
  const std::vector<uint32_t>& calibrated() const { return calibrated_; }

 private:
  absl::StatusOr<Losses> Noted(absl::StatusOr<Losses> known) {
    if (known.ok()) losses_.insert(losses_.end(), known->begin(), known->end());
    return known;
  }

  std::vector<double> losses_;
  std::vector<float> rates_;
  int calibrations_ = 0;
  std::vector<uint32_t> calibrated_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_LOSS_NOTES_H_
