// What a Network is made for.
#ifndef TESSERA_WORKER_MODEL_NETWORK_OPTIONS_H_
#define TESSERA_WORKER_MODEL_NETWORK_OPTIONS_H_

#include <cstdint>
#include <optional>

#include "worker/model/plan.h"

namespace tessera {

// What calibration allocates at most for activations that it keeps from pass to pass, besides the buffers that only
// training uses: room for all of a small network's, and for some pieces of a large one's.
constexpr int64_t kCalibrationStoreBytes = int64_t{256} << 20;

struct NetworkOptions {
  int64_t batch_max = 0;
  Precision precision = Precision::kF32;
  // Batches have sparse rows, which the first layer reads; it is linear, and in f32.
  bool sparse_input = false;
  // Only with sparse_input: there is no gradient of the first weight, TrainingSteps::StepFirstWeight moves that
  // weight. For rules by which an entry without gradient stays what it is.
  bool steps_first_weight = false;
  // Only with steps_first_weight: the most rows of a minibatch that comes in pieces; the first layer's outputs have
  // gradients for so many, as its weight moves behind the last piece. 0: each minibatch is one batch.
  int64_t minibatch_max = 0;
  // It only evaluates: it holds no gradients and nothing else of training, whose calls it refuses.
  bool evaluates_only = false;
  // NetworkArrays::gradient is there for a device whose memory is out of the host's reach, too. Each layer's
  // part comes while the layers before it are at work.
  bool fetches_gradients = false;
  // A half of the model, which only trains, on whole minibatches of dense rows; none: the whole (HalfOf).
  std::optional<LayerRange> layers = std::nullopt;

  // In place of kCalibrationStoreBytes. What calibration finds does not depend on it.
  int64_t calibration_store_bytes = kCalibrationStoreBytes;

  bool trains() const { return !evaluates_only; }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NETWORK_OPTIONS_H_
