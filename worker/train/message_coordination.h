// What the train loop asks of the coordinator, as messages. How they travel is the derived class's.
#ifndef TESSERA_WORKER_TRAIN_MESSAGE_COORDINATION_H_
#define TESSERA_WORKER_TRAIN_MESSAGE_COORDINATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "worker/train/coordination.h"

namespace tessera {

v1::Progress ToProto(const TrainProgress& progress);

// Replies that no coordinator of ours would give are kInternal: an epoch that this worker is not in yet, a part that
// there is not, very many epochs in a row that are over.
class MessageCoordination : public Coordination {
 public:
  absl::StatusOr<EpochCut> BeginEpoch(uint64_t epoch, uint64_t step) override;
  absl::StatusOr<EvaluationPlace> Arrive(const Arrival& arrival) override;
  absl::StatusOr<std::optional<std::vector<float>>> ShareConstants(
      const EvaluationPlace& place, std::vector<float> constants) override;
  absl::StatusOr<std::optional<EvaluationResult>> Score(const EvaluationPlace& place,
                                                        const EvaluationScores& scores) override;

 private:
  virtual absl::StatusOr<v1::EpochCut> AskEpoch(uint64_t epoch, uint64_t step) = 0;
  // Fills in the member and the evaluation's number.
  virtual absl::StatusOr<v1::EvaluateReply> AskEvaluation(v1::EvaluateRequest request) = 0;

  uint64_t epochs_over_ = 0;  // that it was told of in a row
  uint64_t attempt_ = 0;      // of the evaluation that was begun anew; 0: none was
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_MESSAGE_COORDINATION_H_
