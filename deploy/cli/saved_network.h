// A checkpoint's model, made ready to score rows: what `tessera eval` and `tessera export --job` have in common.
#ifndef TESSERA_DEPLOY_CLI_SAVED_NETWORK_H_
#define TESSERA_DEPLOY_CLI_SAVED_NETWORK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_facts.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/model/network.h"
#include "worker/replica/batch_rows.h"

namespace tessera {

// The rows that `job` names, read as the checkpoint's were, with the sum of those for training; `facts` are its own
// (ReadFacts). LoadDatasets' codes.
absl::StatusOr<Datasets> LoadDataOf(const v1::Job& job, const std::optional<ModelFacts>& facts);

// What of `job` is not as the checkpoint was trained and changes what its model answers, in lines for people: keys of
// the model, the normalisation, and other training rows. Empty: nothing.
std::vector<std::string> Differences(const v1::Job& job, const Checkpoint& checkpoint,
                                     const std::optional<ModelFacts>& facts, const Datasets& data);

// Owns the whole network. One thread.
class SavedNetwork {
 public:
  // `data` is LoadDataOf(job, facts). All outlive it.
  //   kFailedPrecondition  the checkpoint is of another model
  static absl::StatusOr<std::unique_ptr<SavedNetwork>> Create(
      const v1::Job& job, const Checkpoint& checkpoint, const std::optional<ModelFacts>& facts,
      const Datasets& data);

  // What batch norms normalise with: what the checkpoint has of it, else calibrated, as the job's own evaluation at
  // that step would have.
  //   kFailedPrecondition  the checkpoint has none, and the training rows are others than it was trained on
  absl::StatusOr<std::vector<float>> Constants();
  // Scores these test rows.
  absl::StatusOr<Scores> Score(absl::Span<const uint32_t> rows, absl::Span<const float> constants);

 private:
  SavedNetwork(const v1::Job& job, const Checkpoint& checkpoint,
               const std::optional<ModelFacts>& facts, const Datasets& data);
  absl::Status Init();
  absl::StatusOr<std::vector<float>> SavedConstants() const;
  absl::StatusOr<std::vector<float>> Calibrate();

  const v1::Job& job_;
  const Checkpoint& checkpoint_;
  // The job that wrote the checkpoint, as far as this build knows its keys.
  const v1::Job saved_job_;
  const std::optional<ModelFacts>& facts_;
  const Datasets& data_;
  const InputRows input_;
  BatchRows rows_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Network> network_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SAVED_NETWORK_H_
