#include "kernels/cuda/machine.h"

#include "absl/strings/str_cat.h"

namespace tessera::cuda {
namespace {

// The oldest generation that the build has code for (kernels/cuda/BUILD.bazel).
constexpr int kMajorMin = 8;

// What CUDA and its libraries take for themselves is less.
constexpr int64_t kLittle = int64_t{2} << 30;

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

std::string LittleMemory(int64_t free, int64_t total) {
  if (free >= kLittle || total <= 0) return "";
  return absl::StrCat("; ", free >> 20, " MiB of its ", total >> 20,
                      " MiB are free: nvidia-smi says who has the others");
}

absl::Status Refused(int ordinal, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat("cluster.device: cuda:", ordinal, ": ", what));
}

absl::Status CheckMachine(int ordinal, const Machine& machine) {
  // The order is from the machine to the GPU: each check makes sense only where the one before it passed.
  if (machine.driver == 0) {
    return Refused(ordinal, "this machine has no NVIDIA driver, want one; or use cpu");
  }
  // A driver runs programs of any minor version of its own major one.
  if (machine.driver / 1000 < machine.runtime / 1000) {
    return Refused(ordinal, absl::StrCat("the driver supports CUDA ", VersionText(machine.driver),
                                         ", want ", VersionText(machine.runtime), " or newer"));
  }
  if (!machine.failure.empty()) {
    return Refused(ordinal, absl::StrCat("no GPU can be used: ", machine.failure));
  }
  if (machine.gpus == 0) {
    return Refused(ordinal, "this machine has no GPU, want one; or use cpu");
  }
  if (ordinal >= machine.gpus) {
    return Refused(ordinal,
                   absl::StrCat("this machine has ", machine.gpus,
                                machine.gpus == 1 ? " GPU, want cuda" : " GPUs, want less"));
  }
  return absl::OkStatus();
}

absl::Status CheckGpu(int ordinal, const Gpu& gpu) {
  if (gpu.major >= kMajorMin) return absl::OkStatus();
  return Refused(ordinal, absl::StrCat(gpu.name, " has compute capability ", gpu.major, ".",
                                       gpu.minor, ", want ", kMajorMin, ".0 or newer"));
}

}  // namespace tessera::cuda
