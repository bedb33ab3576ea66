// The table of backends that this build has.
#ifndef TESSERA_KERNELS_DEVICES_H_
#define TESSERA_KERNELS_DEVICES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/device_options.h"

namespace tessera {

// `device` is cluster.device of the job ("cpu", "cuda", "cuda:1"), `threads` is cluster.threads; a
// GPU's backend uses the calling thread alone.
//   kInvalidArgument     no such device, or no such number of threads
//   kFailedPrecondition  the device is not in this build or in this machine
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view device, int threads,
                                                       const DeviceOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_KERNELS_DEVICES_H_
