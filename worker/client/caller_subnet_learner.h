// A learner of subnets whose minibatches are computed by the program that called the client library.
#ifndef TESSERA_WORKER_CLIENT_CALLER_SUBNET_LEARNER_H_
#define TESSERA_WORKER_CLIENT_CALLER_SUBNET_LEARNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/keyset/subnet.h"
#include "kernels/backend.h"
#include "kernels/memory.h"
#include "worker/client/caller_learner.h"
#include "worker/client/turns.h"
#include "worker/train/learner.h"

namespace tessera {

// The caller's arrays are as large as its subnet, and others in each round. A round's values come into memory of the
// learner's own, as their cut is not certain before; the caller is then asked for arrays of that cut, and has the
// values copied. What it has trained is pushed from where it lies. An evaluation reads the whole model into arrays that
// the caller gives for it, and leaves those of the round as they are; a caller that gives none scores no rows.
//
// From BeginTail on the model is whole, and a CallerLearner takes over.
//
// One thread, the train loop's.
class CallerSubnetLearner final : public Learner {
 public:
  // `backend` is the CPU's; all but the options outlive the learner.
  //   kInvalidArgument    the rank has no unit of some group
  //   kUnimplemented      CheckCallersJob's
  //   kResourceExhausted  no memory
  static absl::StatusOr<std::unique_ptr<CallerSubnetLearner>> Create(CallerLearner::Options options,
                                                                     Backend* backend, Turns* turns,
                                                                     CallerExchange* exchange);

  const ParameterArrays& values() const override { return tail_ ? tail_->values() : values_; }
  const KeySet& value_keys() const override { return tail_ ? tail_->value_keys() : value_keys_; }
  const ConstParameterArrays& update() const override {
    return trains_whole_ ? tail_->update() : update_;
  }
  const KeySet& update_keys() const override {
    return trains_whole_ ? tail_->update_keys() : update_keys_;
  }
  uint64_t examples(uint64_t rows) const override { return exchange_.examples; }

  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override;
  absl::Status FormUpdate() override;
  absl::Status AdoptValues() override;
  absl::Status Recut(const SubnetPlace& place) override;
  absl::Status BeginTail() override;
  absl::Status PrepareToSave() override;
  absl::StatusOr<PrivateState> private_state() override;
  absl::Status AdoptPrivateState() override;
  bool pulls_apart() const override { return true; }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override;
  absl::StatusOr<bool> EndEvaluation() override;
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override;
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override;

 private:
  CallerSubnetLearner(CallerLearner::Options options, Backend* backend, Turns* turns,
                      CallerExchange* exchange);
  size_t count() const { return options_.exchanged.parameters.size(); }
  // The next round's keys and memory.
  absl::Status Expect(const SubnetPlace& place);
  // What the caller is told of the subnet at `place`.
  CallerCut CutAt(const SubnetPlace& place, const Subnet& subnet) const;
  CallerCut WholeCut() const;

  const CallerLearner::Options options_;
  Backend& backend_;
  Turns& turns_;
  CallerExchange& exchange_;
  const NeuronGroups groups_;
  const std::vector<int> weights_of_mean_share_;

  // The next round.
  KeySet value_keys_;
  CallerCut next_cut_;
  Buffer<float> pulled_;
  ParameterArrays values_;

  // This round.
  KeySet update_keys_;
  CallerCut cut_;
  ConstParameterArrays update_;
  uint32_t sites_ = 1;    // of the last round trained, or of the next if there was none
  bool scores_ = false;   // the caller has given arrays for the evaluation
  Buffer<float> pushed_;  // what update() is of at BeginTail

  std::unique_ptr<CallerLearner> tail_;  // from BeginTail on
  bool trains_whole_ = false;            // its first values have come
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CLIENT_CALLER_SUBNET_LEARNER_H_
