// The constants of a network's batch norms, found in pieces of a sample.
//
//   for each pass of the plan (calibration_plan.h), for each piece of at most batch_max rows, in order:
//     bring back what was kept of the piece behind the last pass, or else behind an earlier one, or else read its rows
//     compute the stages from there up to this pass, with the constants found so far
//     add what the pass's batch norms read to their sums, in f64
//     keep what later passes read, where there is room
//   and behind its last piece: the constants of the pass's batch norms follow from their sums
//
// Rows are added in their order, so that pieces of another size give the same sums, up to what a matrix product rounds
// otherwise for other rows. What is kept lies in the buffers that only training uses, and in kCalibrationStoreBytes
// more where these are not enough; what finds no room is computed anew.
#ifndef TESSERA_WORKER_MODEL_CALIBRATION_H_
#define TESSERA_WORKER_MODEL_CALIBRATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/activation_addresses.h"
#include "worker/model/activation_store.h"
#include "worker/model/batch.h"
#include "worker/model/calibration_plan.h"
#include "worker/model/example_source.h"
#include "worker/model/network_input.h"
#include "worker/model/network_options.h"
#include "worker/model/network_stages.h"
#include "worker/model/plan.h"

namespace tessera {

// One run. Threading: one thread, the backend's.
class Calibration {
 public:
  // All outlive it. `constants`: where the plan's constants go.
  Calibration(const NetworkPlan& plan, const NetworkOptions& options, NetworkInput& input,
              NetworkStages& stages, float* constants, Backend& backend);

  // Writes the constants, which are there when it returns. `source` has at least one example.
  // kInvalidArgument, kResourceExhausted as NetworkEvaluation's, and the source's failure.
  absl::Status Run(ExampleSource* source);

 private:
  absl::Status MakeRoom(int64_t rows);
  // Goes through one pass with one piece, which are rows [begin, begin + rows).
  absl::Status RunPiece(int pass, int64_t begin, int64_t rows, ExampleSource* source);
  void Compute(int pass, const Batch& piece);
  void AddToSums(int pass, const Batch& piece, bool is_first);
  void FindConstants(int pass, int64_t rows);
  std::vector<ActivationStore::Values> KeptOf(int pass, int64_t rows) const;
  double* SumsOf(int stage) const;

  const NetworkPlan& plan_;
  const CalibrationPlan& order_;
  const int64_t batch_max_;
  const bool reads_sparse_;
  const int64_t store_bytes_;
  NetworkInput& input_;
  NetworkStages& stages_;
  float* const constants_;
  Backend& backend_;
  ActivationAddresses activations_;
  std::vector<int64_t> constants_begin_;  // by stage
  Buffer<double> sums_;
  Buffer<float> room_;
  // There is none where the sample is in one piece.
  std::optional<ActivationStore> store_;
  // Where the sample is one piece: the pass that it has been through, whose values lie in the buffers; else -1.
  int resident_ = -1;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_CALIBRATION_H_
