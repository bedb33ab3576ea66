// Steps of one weight in bf16, by the product that its gradient is and by the gradient, as a table on stdout.
#ifndef TESSERA_BENCH_GPU_WEIGHT_STEPS_H_
#define TESSERA_BENCH_GPU_WEIGHT_STEPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace tessera {

// Times steps of a layer of `width` x `width`, by rows of the batch, by product and by gradient:
// DeviceOptions::product_step_rows_max is set from it, so that `device` is to be one without that limit. Fails
// only where the device does; adds to `wrong` where the two do not step alike.
absl::Status TimeWeightSteps(int64_t width, double seconds, Backend& device, int* wrong);

}  // namespace tessera

#endif  // TESSERA_BENCH_GPU_WEIGHT_STEPS_H_
