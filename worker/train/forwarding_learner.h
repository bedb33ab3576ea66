// A learner that does what another one does: for those that look on, or take time for it.
#ifndef TESSERA_WORKER_TRAIN_FORWARDING_LEARNER_H_
#define TESSERA_WORKER_TRAIN_FORWARDING_LEARNER_H_

#include <memory>
#include <utility>
#include <vector>

#include "worker/train/learner.h"

namespace tessera {

class ForwardingLearner : public Learner {
 public:
  explicit ForwardingLearner(std::unique_ptr<Learner> inner) : inner_(std::move(inner)) {}

  const ParameterArrays& values() const override { return inner_->values(); }
  const KeySet& value_keys() const override { return inner_->value_keys(); }
  const ConstParameterArrays& update() const override { return inner_->update(); }
  const KeySet& update_keys() const override { return inner_->update_keys(); }
  uint64_t summed() const override { return inner_->summed(); }
  uint64_t examples(uint64_t rows) const override { return inner_->examples(rows); }
  int64_t exchanged_bytes() const override { return inner_->exchanged_bytes(); }
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    return inner_->Train(data, rows, point);
  }
  absl::StatusOr<Losses> EndSteps() override { return inner_->EndSteps(); }
  absl::Status FormUpdate() override { return inner_->FormUpdate(); }
  absl::Status AdoptValues() override { return inner_->AdoptValues(); }
  absl::Status AdoptEarlierValues() override { return inner_->AdoptEarlierValues(); }
  absl::Status TrainOn() override { return inner_->TrainOn(); }
  ValueSink* value_sink() override { return inner_->value_sink(); }
  absl::Status Recut(const SubnetPlace& place) override { return inner_->Recut(place); }
  absl::Status BeginTail() override { return inner_->BeginTail(); }
  ExchangeKeys* exchange_keys() override { return inner_->exchange_keys(); }
  bool keeps_values() override { return inner_->keeps_values(); }
  absl::Status PrepareToSave() override { return inner_->PrepareToSave(); }
  absl::StatusOr<PrivateState> private_state() override { return inner_->private_state(); }
  absl::Status AdoptPrivateState() override { return inner_->AdoptPrivateState(); }
  bool pulls_apart() const override { return inner_->pulls_apart(); }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override {
    return inner_->BeginEvaluation(servers, after, word);
  }
  absl::StatusOr<bool> EndEvaluation() override { return inner_->EndEvaluation(); }
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override {
    return inner_->Calibrate(data, rows);
  }
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override {
    return inner_->Score(data, rows, constants);
  }

 private:
  const std::unique_ptr<Learner> inner_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_FORWARDING_LEARNER_H_
