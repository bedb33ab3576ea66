// The precision of a network's matrix products in training.
#ifndef TESSERA_WORKER_MODEL_PRECISION_H_
#define TESSERA_WORKER_MODEL_PRECISION_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The factors of matrix products in training. Sums, parameters, activations between layers and all
// of evaluation are f32.
enum class Precision { kF32, kTf32, kBf16 };

// Reads train.precision. kInvalidArgument for another word.
absl::StatusOr<Precision> PrecisionOf(absl::string_view name);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_PRECISION_H_
