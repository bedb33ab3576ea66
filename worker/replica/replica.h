// A worker's copy of what it trains, and what becomes of it between two exchanges.
#ifndef TESSERA_WORKER_REPLICA_REPLICA_H_
#define TESSERA_WORKER_REPLICA_REPLICA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "kernels/backend.h"
#include "kernels/memory.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/exchange/parameter_client.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"

namespace tessera {

// The model, its gradient, and with a local optimizer its state and the values of the last pull.
//
// One thread, the train loop's. No allocation after Create but in evaluations.
class Replica {
 public:
  // `backend` outlives the replica.
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  the job's precision is not to be had on this machine
  static absl::StatusOr<std::unique_ptr<Replica>> Create(const v1::Job& job, const Recipe& recipe,
                                                         Rank rank, Backend* backend);

  // Bytes that a replica of this job takes, evaluation included; `calibration_rows` are its sample.
  static absl::StatusOr<int64_t> MemoryNeeded(const v1::Job& job, const Recipe& recipe,
                                              int64_t calibration_rows);

  // Where pulled values are written, and from where the update is sent: for a gradient the gradient
  // itself, for a delta the change since the last pull.
  const ParameterArrays& values() const { return values_; }
  const ConstParameterArrays& update() const { return update_; }

  // One minibatch: forward and backward, and the local optimizer where the method has one. Returns
  // the mean loss of the minibatch.
  absl::StatusOr<double> Train(const Dataset& data, absl::Span<const uint32_t> rows, uint64_t step);
  // The last local step is done: makes update() what is to be sent.
  absl::Status FormUpdate();
  // values() have just been replaced by the servers'.
  absl::Status AdoptValues();

  // Evaluation of the values as they are (docs/methods.md): the constants of batch norm over `rows`
  // of the training data, and the scores of `rows` of the test data under given constants.
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows);
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants);

 private:
  Replica(const v1::Job& job, Rank rank, Backend* backend)
      : job_(job), rank_(rank), backend_(*backend) {}
  // Fills the batch buffers, which grow to `rows` rows at first use, with rows of `data`.
  Batch Fill(const Dataset& data, absl::Span<const uint32_t> rows);

  const v1::Job job_;
  const Rank rank_;
  Backend& backend_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<LocalOptimizer> optimizer_;  // where the method steps locally
  Buffer<float> pulled_;  // then also the values of the last pull, or the delta
  ParameterArrays values_;
  ConstParameterArrays update_;
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
  std::vector<float> targets_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_REPLICA_H_
