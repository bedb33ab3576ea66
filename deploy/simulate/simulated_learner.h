// Learners whose work takes simulated time.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_LEARNER_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_LEARNER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/layout/parameters.h"
#include "deploy/simulate/worker_pace.h"
#include "worker/exchange/fragment_keys.h"
#include "worker/train/forwarding_learner.h"
#include "worker/train/learner.h"

namespace tessera {

// Does another learner's work on a core of a simulated machine.
class SimulatedLearner final : public ForwardingLearner {
 public:
  // `work` outlives it.
  SimulatedLearner(std::unique_ptr<Learner> inner, PacedWork* work)
      : ForwardingLearner(std::move(inner)), work_(*work) {}

  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override;
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override;
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override;

 private:
  class Waits;

  PacedWork& work_;
};

// The memory of all stub learners of a simulation: they need no values of their own.
class StubArrays {
 public:
  explicit StubArrays(const ModelShape& shape);
  const ParameterArrays& values() const { return values_; }
  const ConstParameterArrays& update() const { return update_; }
  // All entries. A simulated client knows by itself which are whose.
  const KeySet& keys() const { return keys_; }

 private:
  std::vector<std::vector<float>> memory_;
  KeySet keys_;
  ParameterArrays values_;
  ConstParameterArrays update_;
};

// Computes nothing: every update is the same tiny one, every loss 1, and no row is scored. For
// simulations of time and traffic alone.
class StubLearner : public Learner {
 public:
  // `core` or `fragments`: of which entries its exchanges are, where these are of a core and an explorer, or of
  // fragments.
  explicit StubLearner(const StubArrays* arrays, std::unique_ptr<ExchangeKeys> core = nullptr,
                       std::unique_ptr<FragmentKeys> fragments = nullptr)
      : arrays_(*arrays), core_(std::move(core)), fragments_(std::move(fragments)) {}

  const ParameterArrays& values() const override { return arrays_.values(); }
  const KeySet& value_keys() const override {
    if (fragments_ != nullptr) return fragments_->value_keys();
    return core_ != nullptr ? core_->value_keys() : arrays_.keys();
  }
  ExchangeKeys* exchange_keys() override { return core_.get(); }
  const ConstParameterArrays& update() const override { return arrays_.update(); }
  const KeySet& update_keys() const override {
    if (fragments_ != nullptr) return fragments_->update_keys();
    return core_ != nullptr ? core_->update_keys() : arrays_.keys();
  }
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    return Losses{1.0};
  }
  absl::Status FormUpdate() override { return absl::OkStatus(); }
  absl::Status AdoptValues() override {
    if (fragments_ == nullptr) return absl::OkStatus();
    if (fragments_->has_values()) {
      fragments_->End();
    } else {
      fragments_->TakeAll();
    }
    return absl::OkStatus();
  }
  absl::Status AdoptEarlierValues() override { return absl::OkStatus(); }
  absl::Status TrainOn() override {
    if (fragments_ != nullptr) fragments_->Begin();
    return absl::OkStatus();
  }
  absl::Status Recut(const SubnetPlace& place) override {
    return absl::UnimplementedError("simulation: stub learners have no subnets");
  }
  absl::Status BeginTail() override { return Recut({}); }
  bool pulls_apart() const override { return true; }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override {
    return servers->Read(after, word, arrays_.values());
  }
  absl::StatusOr<bool> EndEvaluation() override { return false; }
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override {
    return std::vector<float>();
  }
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override {
    return Scores();
  }

 private:
  const StubArrays& arrays_;
  const std::unique_ptr<ExchangeKeys> core_;
  const std::unique_ptr<FragmentKeys> fragments_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_LEARNER_H_
