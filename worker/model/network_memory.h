// The memory of a network: which buffers its passes share, and the bytes of all that it allocates.
#ifndef TESSERA_WORKER_MODEL_NETWORK_MEMORY_H_
#define TESSERA_WORKER_MODEL_NETWORK_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/buffer_plan.h"
#include "worker/model/calibration_plan.h"
#include "worker/model/network_options.h"
#include "worker/model/plan.h"

namespace tessera {

// The buffers of activations and their gradients. Training, evaluation and calibration take turns in their memory.
struct NetworkBuffers {
  std::vector<int64_t> offsets;  // by buffer, of all three: as BufferPlaces has them
  int64_t floats = 0;            // of an example, in all of the memory
  TrainingBuffers training;      // empty for a network that only evaluates
  // By stage: the buffer of its output in evaluation, or kNetworkInput. Empty for a half, which only trains.
  std::vector<int> evaluated;
  // Empty for a half, and where there is nothing to calibrate. What its places leave of the memory is behind them.
  CalibrationPlan calibration;
};
NetworkBuffers BuffersOf(const NetworkPlan& plan, bool trains);

// The room for what a calibration of so many rows keeps.
struct CalibrationRoom {
  int64_t page_floats = 0;  // of an ActivationStore; 0: nothing need be kept
  int64_t more_floats = 0;  // besides what lies free in the buffers
};
// `bytes_max` as NetworkOptions::calibration_store_bytes.
CalibrationRoom CalibrationRoomOf(const NetworkBuffers& buffers, int64_t batch_max, int64_t rows,
                                  int64_t bytes_max = kCalibrationStoreBytes);
// The f64 sums that constants follow from: a pivot, distances and squares for each mean and 1/sigma.
int64_t CalibrationSums(const NetworkPlan& plan);

// Floats that the stages of a network allocate for themselves.
int64_t KeptFloats(const NetworkPlan& plan, int64_t batch_max, bool trains);

struct NetworkMemory {
  // Bytes that are held from Create on.
  int64_t held_bytes = 0;
  // What a network that evaluates only holds.
  int64_t evaluation_bytes = 0;
  // More while Calibrate runs, of a network that trains and of one that evaluates only.
  int64_t calibration_bytes = 0;
  int64_t evaluation_calibration_bytes = 0;
};

// All that a Network allocates for `batch_max` rows. Besides, oneDNN keeps its generated code and
// some hundred KiB of scratch for each product and thread (of convolutions up to some MiB, in bf16 and without
// AVX-512 tens of MiB where images are large), and products with sparse rows keep
// SparseScratchBytes. `minibatch_max` as NetworkOptions'. A half calibrates nothing.
NetworkMemory MemoryNeeded(const NetworkPlan& plan, int64_t batch_max, Precision precision,
                           int64_t calibration_rows, bool sparse_input = false,
                           bool steps_first_weight = false, int64_t minibatch_max = 0);

// What a device's kernels take besides, for `rows` rows: the most that one stage's do. When it is asked a device looks
// for its library of convolutions. kFailedPrecondition: it has no such precision.
absl::StatusOr<int64_t> DeviceScratchBytes(const NetworkPlan& plan, int64_t rows,
                                           Precision precision, Backend& backend);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NETWORK_MEMORY_H_
