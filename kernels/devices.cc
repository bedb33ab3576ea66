#include "kernels/devices.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/cpu/backend.h"
#ifdef TESSERA_CUDA
#include "kernels/cuda/backend.h"
#endif

namespace tessera {

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view device, int threads,
                                                       const DeviceOptions& options) {
  if (device == "cpu") return CreateCpuBackend({threads});
  absl::string_view number = device;
  int ordinal = 0;
  const bool cuda = device == "cuda" || (absl::ConsumePrefix(&number, "cuda:") &&
                                         absl::SimpleAtoi(number, &ordinal) && ordinal >= 0);
  if (!cuda) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster.device: got \"", device, "\", want cpu, cuda or cuda:N"));
  }
#ifdef TESSERA_CUDA
  return CreateCudaBackend(ordinal, options);
#else
  (void)options;
  return absl::FailedPreconditionError(absl::StrCat("cluster.device: \"", device,
                                                    "\" is not in this build, want cpu; ",
                                                    "bazel build --config=cuda has it"));
#endif
}

}  // namespace tessera
