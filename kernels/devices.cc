#include "kernels/devices.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/backend.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view device, int threads) {
  if (device == "cpu") return CreateCpuBackend({threads});
  if (device == "cuda" || absl::StartsWith(device, "cuda:")) {
    return absl::FailedPreconditionError(
        absl::StrCat("cluster.device: \"", device, "\" is not in this build, want cpu"));
  }
  return absl::InvalidArgumentError(absl::StrCat("cluster.device: got \"", device, "\", want cpu"));
}

}  // namespace tessera
