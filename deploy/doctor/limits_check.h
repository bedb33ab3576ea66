// Whether the system lets a job's processes have the threads and open files that they need.
#ifndef TESSERA_DEPLOY_DOCTOR_LIMITS_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_LIMITS_CHECK_H_

#include <functional>

#include "absl/status/status.h"
#include "common/base/process_limits.h"
#include "deploy/doctor/findings.h"
#include "proto/job.pb.h"

namespace tessera {

// Whether a checked job can start here: `tessera run` with all that it starts where cluster.servers is a number, else
// one worker, or one server where no worker runs here. Nothing, or one problem.
Findings CheckLimits(
    const v1::Job& job, bool has_workers,
    const std::function<absl::Status(const ProcessNeeds&)>& check = CheckProcessLimits);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_LIMITS_CHECK_H_
