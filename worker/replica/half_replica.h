// A worker's half of the layers (Recipe::split): what it trains, and the whole model when it evaluates.
//
// Half of the parameters and of the gradient is all that it exchanges with the servers; what crosses the cut goes
// through worker/activations. Arrays of parameters that it has not are empty.
#ifndef TESSERA_WORKER_REPLICA_HALF_REPLICA_H_
#define TESSERA_WORKER_REPLICA_HALF_REPLICA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/activations/activation_exchange.h"
#include "worker/data/dataset.h"
#include "worker/exchange/parameter_client.h"
#include "worker/model/network.h"
#include "worker/replica/batch_rows.h"
#include "worker/train/learner.h"

namespace tessera {

// One thread, the train loop's.
class HalfReplica : public Learner {
 public:
  // The half in front of the cut, with the data. `backend` and `sender` outlive the learner.
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  the job's precision is not to be had on this machine
  static absl::StatusOr<std::unique_ptr<Learner>> CreateFront(const v1::Job& job,
                                                              const Recipe& recipe, Rank rank,
                                                              Backend* backend,
                                                              ActivationSender* sender);
  // The half behind it. Codes as above.
  static absl::StatusOr<std::unique_ptr<Learner>> CreateLinear(const v1::Job& job,
                                                               const Recipe& recipe, Rank rank,
                                                               Backend* backend,
                                                               ActivationReceiver* receiver);
  // Bytes that the larger half takes, with batches and evaluation; `calibration_rows` are its sample.
  static absl::StatusOr<int64_t> MemoryNeeded(const v1::Job& job, const Recipe& recipe,
                                              int64_t calibration_rows, const InputRows& input);

  const ParameterArrays& values() const override { return values_; }
  const KeySet& value_keys() const override { return keys_; }
  const ConstParameterArrays& update() const override { return update_; }
  const KeySet& update_keys() const override { return summed_ > 0 ? keys_ : no_keys_; }
  uint64_t summed() const override { return summed_; }

  absl::Status FormUpdate() override;
  absl::Status AdoptValues() override;
  absl::Status Recut(const SubnetPlace& place) override;
  absl::Status BeginTail() override;
  bool pulls_apart() const override { return true; }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override;
  absl::StatusOr<bool> EndEvaluation() override { return false; }
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override;
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override;

 protected:
  HalfReplica(const v1::Job& job, Rank rank, Backend* backend)
      : job_(job), rank_(rank), backend_(*backend), rows_(job, InputRows()) {}
  absl::Status Init(const Recipe& recipe);

  const v1::Job job_;
  const Rank rank_;
  Backend& backend_;
  std::unique_ptr<Network> network_;
  BatchRows rows_;
  // The number of batches that the gradient is the sum of.
  uint64_t summed_ = 0;

 private:
  KeySet keys_, no_keys_;
  ParameterArrays values_;
  ConstParameterArrays update_;
  std::unique_ptr<Network> whole_;
  ParameterArrays whole_values_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_HALF_REPLICA_H_
