// Whether a worker could compute on this machine as the job says.
#ifndef TESSERA_DEPLOY_DOCTOR_DEVICE_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_DEVICE_CHECK_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/doctor/findings.h"
#include "kernels/backend.h"
#include "kernels/device_options.h"
#include "proto/job.pb.h"

namespace tessera {

// Makes a backend as CreateBackend does, with the devices that there are.
using MakeBackend = std::function<absl::StatusOr<std::unique_ptr<Backend>>(
    absl::string_view device, int threads, const DeviceOptions& options)>;

// Opens cluster.device of a checked job, asks it for train.precision, and where the model has convolutions, for the
// library that would compute them. One finding, and one more where cluster.threads of a CPU are more than this machine
// has `cores`; 0: that is not known.
Findings CheckDevice(const v1::Job& job, const MakeBackend& make_backend, int64_t cores);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_DEVICE_CHECK_H_
