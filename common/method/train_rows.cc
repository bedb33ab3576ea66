#include "common/method/train_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// The number of epochs that begin while rank 0 warms up: these are cut for it alone, and who joins in one has no
// part of it.
int64_t EpochsOfRankZero(const v1::Job& job, int64_t rows) {
  const int64_t warmup = job.method().decentralized().warmup_steps(),
                steps = rows / job.train().batch_size();
  // The last epoch of the warm-up counts whole, as it is cut before anybody joins.
  return warmup == 0 || steps == 0 ? 0 : (warmup - 1) / steps + 1;
}

// Whether all of the job's epochs are cut for rank 0 alone.
bool IsCutForRankZero(const v1::Job& job, int64_t rows) {
  const int64_t alone = EpochsOfRankZero(job, rows);
  if (alone == 0 || job.train().steps() == 0) return alone > 0 && job.train().epochs() <= alone;
  return (job.train().steps() - 1) / (rows / job.train().batch_size()) < alone;
}

// The minibatches of one worker in an epoch; an error says how many rows are missing.
absl::StatusOr<int64_t> StepsOfEpoch(const v1::Job& job, int64_t workers, int64_t rows) {
  // Linear workers have no rows.
  int64_t with_data =
      std::max<int64_t>(1, workers - job.method().layer_separation().linear_workers());
  if (IsCutForRankZero(job, rows)) with_data = 1;
  // Each worker of a local partition has as many rows as this one, which is all that it knows.
  const int64_t of_all = job.data().partition() == "local" ? with_data * rows : rows;
  return EpochSteps(of_all, with_data, job.train().batch_size());
}

}  // namespace

bool DealsBySpeed(const v1::Job& job) { return job.data().partition() == "by_speed"; }

int64_t MinibatchRowsMax(const v1::Job& job) {
  const int64_t batch = job.train().batch_size();
  // However few workers the job names, more may join.
  return DealsBySpeed(job) ? batch * kBatchMost : batch;
}

absl::StatusOr<int64_t> EpochSteps(int64_t rows, int64_t workers, int64_t batch_size) {
  TESSERA_CHECK(rows >= 0 && workers >= 1 && batch_size >= 1);
  const int64_t steps = rows / workers / batch_size;  // The product may be too large.
  if (steps > 0) return steps;
  return absl::InvalidArgumentError(
      absl::StrCat("training rows are ", rows, ", want at least ", workers,
                   workers == 1 ? " worker x " : " workers x ", batch_size));
}

absl::StatusOr<int64_t> JobSteps(const v1::Job& job, int64_t rows) {
  TESSERA_ASSIGN_OR_RETURN(const int64_t of_epoch,
                           StepsOfEpoch(job, job.cluster().workers(), rows));
  if (job.train().steps() > 0) return job.train().steps();
  const int64_t alone = std::min(job.train().epochs(), EpochsOfRankZero(job, rows));
  return alone * (rows / job.train().batch_size()) + (job.train().epochs() - alone) * of_epoch;
}

absl::Status CheckTrainRows(const v1::Job& job, int64_t workers, int64_t rows) {
  return StepsOfEpoch(job, workers, rows).status();
}

}  // namespace tessera
