// A network on rows that it does not learn from.
#ifndef TESSERA_WORKER_MODEL_NETWORK_EVALUATION_H_
#define TESSERA_WORKER_MODEL_NETWORK_EVALUATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/activation_addresses.h"
#include "worker/model/batch.h"
#include "worker/model/example_source.h"
#include "worker/model/network_input.h"
#include "worker/model/network_options.h"
#include "worker/model/network_stages.h"
#include "worker/model/plan.h"
#include "worker/model/training_steps.h"

namespace tessera {

// In f32 whatever the precision of training, so that workers of one job that differ in it agree on the model's scores.
// While steps of training are begun and not ended neither is called.
//
// Threading: one thread at a time, the backend's.
class NetworkEvaluation {
 public:
  // The arguments outlive it. `steps`: those of the network, null where it only evaluates.
  // kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<NetworkEvaluation>> Create(
      const v1::Model& model, const NetworkPlan& plan, const NetworkOptions& options,
      NetworkInput& input, NetworkStages& stages, const TrainingSteps* steps, Backend& backend);

  // The constants of every batch norm, over all rows of the sample together: stage by stage its
  // means, then as many 1/sqrt(variance + epsilon). Each layer sees the layers before it as
  // evaluation does. Empty for a model without batch norm. Reads the rows in pieces of batch_max, once or more
  // (calibration.h), and takes NetworkMemory's calibration_bytes meanwhile.
  //   kInvalidArgument     the sample has no rows, or rows without inputs
  //   kFailedPrecondition  the network is a half
  //   kResourceExhausted   no memory
  // and the source's failure.
  absl::StatusOr<std::vector<float>> Calibrate(ExampleSource* sample);

  // Forward without dropout, with Calibrate's constants. kInvalidArgument as NetworkInput::Take, and for
  // constants of another number. kFailedPrecondition: the network is a half.
  absl::StatusOr<Scores> Score(const Batch& batch, absl::Span<const float> constants);

  // Writes what the last layer makes of each row, as Score goes through them: [rows, outputs], and of models of tokens
  // [rows, places x vocabulary], row-major. Labels and targets are not read. Codes as Score's; kInvalidArgument also
  // for `scores` of another size.
  absl::Status Predict(const Batch& batch, absl::Span<const float> constants,
                       absl::Span<float> scores);

 private:
  NetworkEvaluation(const v1::Model& model, const NetworkPlan& plan, const NetworkOptions& options,
                    NetworkInput& input, NetworkStages& stages, const TrainingSteps* steps,
                    Backend& backend);
  absl::Status CheckWhole() const;
  absl::Status CheckConstants(absl::string_view what, absl::Span<const float> constants) const;
  // The last layer's outputs of a batch that was taken, in device memory.
  const float* Forward(const Batch& staged, absl::Span<const float> constants);

  const v1::Model& model_;
  const NetworkPlan& plan_;
  const NetworkOptions options_;
  NetworkInput& input_;
  NetworkStages& stages_;
  const TrainingSteps* const steps_;
  Backend& backend_;
  ActivationAddresses activations_;
  Buffer<float> constants_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NETWORK_EVALUATION_H_
