// Whether a machine's GPU can be worked with, from what its driver says.
#ifndef TESSERA_KERNELS_CUDA_MACHINE_H_
#define TESSERA_KERNELS_CUDA_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tessera::cuda {

// Versions are CUDA's: 1000 * major + 10 * minor.
struct Machine {
  int driver = 0;   // the newest that the driver supports; 0: there is no driver
  int runtime = 0;  // that this program was built with
  int gpus = 0;
  std::string failure;  // why they cannot be counted; empty: they can
};

struct Gpu {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
};

// In one line what is wrong and what is wanted, where there is no such GPU to be had.
//   kFailedPrecondition
absl::Status CheckMachine(int ordinal, const Machine& machine);
// Where this build has no code for it.
//   kFailedPrecondition
absl::Status CheckGpu(int ordinal, const Gpu& gpu);

// What to say behind an error of a GPU's first minute, if anything: that it has little memory free, in bytes.
std::string LittleMemory(int64_t free, int64_t total);

// "cluster.device: cuda:1: ..."
absl::Status Refused(int ordinal, const std::string& what);

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_MACHINE_H_
