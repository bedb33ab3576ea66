// What goes wrong on the played GPU, and in which order it works, when a test says so. For all devices of the process.
#ifndef TESSERA_TESTS_KERNELS_CUDA_EMULATION_FAULTS_H_
#define TESSERA_TESTS_KERNELS_CUDA_EMULATION_FAULTS_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "kernels/cuda/machine.h"

namespace tessera::cuda {

struct EmulatedFaults {
  // So many launches from now the kernel fails, and with it all that follows on its device, as CUDA
  // has it. Below 0: none.
  std::atomic<int64_t> launches_left{-1};
  // The copy stream does at once what it need not wait for, so that a copy which should have waited
  // for a kernel comes before it. Otherwise it is as lazy as the other.
  std::atomic<bool> eager_copies{false};
  // What is found when a device is opened. One that is not of compute capability 9.0 steps no weights by products.
  Machine machine{13000, 13000, 1, ""};
  Gpu gpu{"emulated GPU", 9, 0};
  // Work that is recorded is lost, as on a device that cannot record it.
  std::atomic<bool> records_nothing{false};
  // No record can be begun.
  std::atomic<bool> begins_no_record{false};
  // So often was a record repeated.
  std::atomic<int64_t> replays{0};
  // It has a library for convolutions, which takes so many bytes for itself ...
  std::atomic<bool> convolutions{false};
  std::atomic<int64_t> convolution_workspace{768};
  // ... does not know this pass (ConvolutionPass::Kind), or finds out that it does not when it is to do it; -1: none
  std::atomic<int> convolution_unknown{-1};
  std::atomic<int> convolution_refused{-1};
  // ... knows no pass over so many images
  std::atomic<int64_t> convolution_rows_unknown{-1};
  // ... and did so many.
  std::atomic<int64_t> convolutions_done{0};
  // Of each device.
  std::atomic<int64_t> memory_bytes{std::numeric_limits<int64_t>::max()};
};

EmulatedFaults& Faults();

}  // namespace tessera::cuda

#endif  // TESSERA_TESTS_KERNELS_CUDA_EMULATION_FAULTS_H_
