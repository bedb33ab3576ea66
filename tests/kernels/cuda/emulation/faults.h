// What goes wrong on the played GPU, when a test says so. For all devices of the process.
#ifndef TESSERA_TESTS_KERNELS_CUDA_EMULATION_FAULTS_H_
#define TESSERA_TESTS_KERNELS_CUDA_EMULATION_FAULTS_H_

#include <atomic>
#include <cstdint>
#include <limits>

namespace tessera::cuda {

struct EmulatedFaults {
  // So many launches from now the kernel fails, and with it all that follows on its device, as CUDA
  // has it. Below 0: none.
  std::atomic<int64_t> launches_left{-1};
  // Of each device.
  std::atomic<int64_t> memory_bytes{std::numeric_limits<int64_t>::max()};
};

EmulatedFaults& Faults();

}  // namespace tessera::cuda

#endif  // TESSERA_TESTS_KERNELS_CUDA_EMULATION_FAULTS_H_
