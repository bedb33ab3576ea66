// A learner of half of the layers that computes nothing, for simulations of time and traffic alone.
#ifndef TESSERA_DEPLOY_SIMULATE_STUB_HALF_LEARNER_H_
#define TESSERA_DEPLOY_SIMULATE_STUB_HALF_LEARNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/keyset/key_set.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "deploy/simulate/simulated_learner.h"
#include "worker/replica/make_replica.h"
#include "worker/train/learner.h"

namespace tessera {

// A learner that exchanges as many bytes with the servers, and with the other half's workers, as a HalfReplica
// would.
class StubHalfLearner final : public StubLearner {
 public:
  // What all of a simulation have in common. Outlives them.
  struct Surroundings {
    Surroundings(const ModelShape& shape, const LayerSplit& layers, int servers, int64_t batch_size,
                 bool has_classes, const StubArrays* of_parameters);

    const LayerSplit split;
    const StubArrays* const arrays;
    const KeySet front, back, nothing;
    // Arrays of a whole batch.
    std::vector<float> activations, targets;
    std::vector<int32_t> classes;
  };

  StubHalfLearner(const Surroundings* surroundings, Rank rank, const LayerEnds& ends)
      : StubLearner(surroundings->arrays),
        around_(*surroundings),
        keys_(around_.split.is_linear(rank) ? around_.back : around_.front),
        ends_(ends) {}

  const KeySet& value_keys() const override { return keys_; }
  const KeySet& update_keys() const override { return summed_ > 0 ? keys_ : around_.nothing; }
  uint64_t summed() const override { return summed_; }
  int64_t exchanged_bytes() const override {
    return ends_.sender != nullptr ? ends_.sender->payload_bytes() : 0;
  }
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override;

 private:
  absl::StatusOr<Losses> TrainFront(size_t rows, const TrainPoint& point);
  absl::StatusOr<Losses> TrainLinear(const TrainPoint& point);

  const Surroundings& around_;
  const KeySet& keys_;
  const LayerEnds ends_;
  uint64_t summed_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_STUB_HALF_LEARNER_H_
