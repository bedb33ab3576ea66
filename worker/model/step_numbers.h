// What differs from one training step to the next, as kernels read it.
#ifndef TESSERA_WORKER_MODEL_STEP_NUMBERS_H_
#define TESSERA_WORKER_MODEL_STEP_NUMBERS_H_

#include "kernels/dropout_key.h"
#include "kernels/optimizer_numbers.h"

namespace tessera {

// In device memory, so that a step's kernels may be recorded once and repeated.
struct StepNumbers {
  DropoutKey dropout;
  OptimizerNumbers optimizer;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_STEP_NUMBERS_H_
