// A learner of subnets that computes nothing, for simulations of time and traffic alone.
#ifndef TESSERA_DEPLOY_SIMULATE_STUB_SUBNET_LEARNER_H_
#define TESSERA_DEPLOY_SIMULATE_STUB_SUBNET_LEARNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"
#include "deploy/simulate/simulated_learner.h"
#include "worker/train/learner.h"

namespace tessera {

// A learner that asks for the subnets that a SubnetReplica would, and returns as many entries. Every entry is the
// same tiny number, every loss 1, and no row is scored.
class StubSubnetLearner final : public Learner {
 public:
  // What all of a simulation have in common. Outlives them.
  struct Surroundings {
    ModelShape shape;
    NeuronGroups groups;
    uint64_t seed = 0;
    int workers = 1;
    int servers = 1;
    // The arrays of the whole model: a subnet's arrays are the fronts of these.
    const StubArrays* arrays = nullptr;
  };

  // Begins with the subnet of round `first`. A part without neurons is no error here.
  StubSubnetLearner(const Surroundings* surroundings, Rank rank, Exchange first);

  const ParameterArrays& values() const override { return around_.arrays->values(); }
  const KeySet& value_keys() const override { return value_keys_; }
  const ConstParameterArrays& update() const override { return around_.arrays->update(); }
  const KeySet& update_keys() const override { return update_keys_; }
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    return Losses{1.0};
  }
  absl::Status FormUpdate() override { return absl::OkStatus(); }
  absl::Status AdoptValues() override;
  absl::Status Recut(const SubnetPlace& place) override;
  absl::Status BeginTail() override;
  bool pulls_apart() const override { return true; }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override {
    return servers->Read(after, word, values());
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
  KeySet KeysOf(const SubnetPlace& place) const;

  const Surroundings& around_;
  KeySet value_keys_;
  KeySet update_keys_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_STUB_SUBNET_LEARNER_H_
