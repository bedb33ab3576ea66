// What a job chooses of a device beyond its name.
#ifndef TESSERA_KERNELS_DEVICE_OPTIONS_H_
#define TESSERA_KERNELS_DEVICE_OPTIONS_H_

#include <cstdint>

namespace tessera {

struct DeviceOptions {
  // cluster.cudnn: a GPU's convolutions are cuDNN's where the machine has it.
  bool cudnn = true;
  // The host spins while it waits for the device, where it would sleep and leave its core to others. The
  // benchmark asks what that is worth.
  bool spins = false;
  // cuDNN's as well where cuBLAS is known to be faster, for the benchmark that tells where.
  bool cudnn_if_slower = false;
  // Which weights OptimizerKernel::StepByProduct takes: of so many values at least, whose gradient is worth sparing,
  // and of batches of so many rows at most: the more there are, the more products outweigh the update, and at twice
  // as many an eighth is gained (bench/gpu). Tests and the benchmark have others.
  int64_t product_step_size_min = int64_t{1} << 20;
  int64_t product_step_rows_max = 1024;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_DEVICE_OPTIONS_H_
