// What a plan asks of this machine: how long a step takes here, and what only the data tell.
#ifndef TESSERA_DEPLOY_CLI_PLAN_MEASURE_STEP_H_
#define TESSERA_DEPLOY_CLI_PLAN_MEASURE_STEP_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/cli/plan/plan.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace tessera {

// Reads the data, and writes the number of rows and what counts of them to the question. Codes as LoadDatasets.
absl::StatusOr<Datasets> LoadForPlan(const v1::Job& job, PlanQuestion* question);

// Times a step on the whole model. Codes as MeasureStepTime.
absl::Status MeasureWholeStep(v1::Job job, const Datasets& data, PlanQuestion* question);

// Times one on a subnet, where the model can be cut for so many workers: small products are slower than large ones.
// Elsewhere it is that on the whole model, which was timed before.
void MeasureSubnetStep(v1::Job job, const Datasets& data, PlanQuestion* question);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PLAN_MEASURE_STEP_H_
