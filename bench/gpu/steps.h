// Products, training steps and what a batch costs the host, on a GPU, as tables on stdout.
#ifndef TESSERA_BENCH_GPU_STEPS_H_
#define TESSERA_BENCH_GPU_STEPS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace tessera {

struct StepSizes {
  int64_t width = 0;  // of the layers of the step, and of the large product
  int64_t batch = 0;
  double seconds = 0;  // to measure each for
};

// What the device reaches in this run, in bytes per second.
struct DeviceRates {
  double copy = 0;       // on the device, read and written
  double to_device = 0;  // from the host's page-locked memory
};

// Convolutions, and steps of two wide layers, against the device's large product, in each precision that it has, and
// in bf16 also of a batch of 8 times the rows. `at best` is the products at that rate and then the update, whose bytes
// move as a copy's: no more is in reach where parameters fit no cache. Where weights step by their products
// (OptimizerKernel::StepByProduct), update and weight gradients are at work together, and the longer of them counts.
// Nor is more in reach where the link takes longer for a batch. `by_products` is the same device without cuDNN. Fails
// only where the device does; adds to `wrong` the small steps and convolutions whose results are not the CPU's.
absl::Status TimeSteps(const StepSizes& sizes, const DeviceRates& rates, Backend& device,
                       Backend& by_products, int* wrong);

// What the host does for each batch, on the thread that queues the steps.
absl::Status TimeBatches(const StepSizes& sizes, Backend& device);

// What a small step loses by being waited for: the device has nothing to do until the host has queued the
// next one. `how` is said in its heading.
absl::Status TimeSmallSteps(const StepSizes& sizes, const std::string& how, Backend& device);

}  // namespace tessera

#endif  // TESSERA_BENCH_GPU_STEPS_H_
