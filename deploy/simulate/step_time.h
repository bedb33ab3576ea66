// How long one minibatch of the whole model takes on this machine.
#ifndef TESSERA_DEPLOY_SIMULATE_STEP_TIME_H_
#define TESSERA_DEPLOY_SIMULATE_STEP_TIME_H_

#include "absl/status/statusor.h"
#include "deploy/simulate/event_queue.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace tessera {

// The median of some steps of `busy` workers of `job` at the same time, after a few that are not
// counted: cores that work together slow each other down. Takes about a second, or as long as a few
// steps do. Where workers train subnets it is theirs that are timed, and made into what the whole
// model would take at that speed (step_share.h); where they have halves of the layers it is the whole model.
absl::StatusOr<SimNanos> MeasureStepTime(const v1::Job& job, const Datasets& data, int busy);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_STEP_TIME_H_
