#include "deploy/cli/plan/measure_step.h"

#include <utility>

#include "common/base/check.h"
#include "common/layout/parameters.h"
#include "deploy/simulate/step_share.h"
#include "deploy/simulate/step_time.h"
#include "worker/data/load_datasets.h"
#include "worker/replica/batch_rows.h"

namespace tessera {
namespace {

absl::StatusOr<double> MeasureSeconds(const v1::Job& job, const Datasets& data) {
  TESSERA_ASSIGN_OR_RETURN(const SimNanos step, MeasureStepTime(job, data, 1));
  return 1e-9 * static_cast<double>(step);
}

}  // namespace

absl::StatusOr<Datasets> LoadForPlan(const v1::Job& job, PlanQuestion* question) {
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(Datasets data, LoadDatasets(job, EndsOf(job.model(), shape)));
  question->train_rows = data.train.rows();
  question->row_entries = RowEntries(shape, data.train, InputRowsOf(job.model(), data));
  return data;
}

absl::Status MeasureWholeStep(v1::Job job, const Datasets& data, PlanQuestion* question) {
  // A worker of this method has all layers and nothing but its minibatch to compute.
  job.mutable_method()->mutable_data_parallel();
  TESSERA_ASSIGN_OR_RETURN(question->step_seconds, MeasureSeconds(job, data));
  return absl::OkStatus();
}

void MeasureSubnetStep(v1::Job job, const Datasets& data, PlanQuestion* question) {
  job.mutable_method()->mutable_ist()->set_local_steps(1);
  job.mutable_cluster()->set_workers(question->machines.workers);
  // A model that has too few neurons for so many workers is planned with the whole step's time, and its row says why it
  // cannot be trained so.
  const absl::StatusOr<double> of_subnets = MeasureSeconds(job, data);
  question->step_seconds_of_subnets = of_subnets.ok() ? *of_subnets : question->step_seconds;
}

}  // namespace tessera
