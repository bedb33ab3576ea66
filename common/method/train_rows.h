// How many training rows a job must have.
//
// An epoch is floor(N / (K B)) minibatches of each worker, whatever data.partition says: K workers have the data, B is
// the batch size, and N their rows; under local those of all workers together. Under by_speed B is the mean size of the
// workers' minibatches. Where it would be none the coordinator does not begin it, and the job fails.
#ifndef TESSERA_COMMON_METHOD_TRAIN_ROWS_H_
#define TESSERA_COMMON_METHOD_TRAIN_ROWS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace tessera {

// With data.partition by_speed the minibatch of a fast worker has up to so many times train.batch_size rows, and that
// of a slow one down to that by kBatchLeastPart, but at least 2.
constexpr int64_t kBatchMost = 4;
constexpr int64_t kBatchLeastPart = 8;

// Whether slower workers have smaller minibatches.
bool DealsBySpeed(const v1::Job& job);
// Rows of the largest minibatch that a worker may be given.
int64_t MinibatchRowsMax(const v1::Job& job);

// floor(rows / (workers * batch_size)); both of them at least 1.
//   kInvalidArgument  that is 0: "training rows are 5, want at least 3 workers x 128"
absl::StatusOr<int64_t> EpochSteps(int64_t rows, int64_t workers, int64_t batch_size);

// Minibatches of each worker in all of a job, none of whose workers is lost; `rows` are those of each worker's files.
//   kInvalidArgument  there are too few for an epoch, as above
absl::StatusOr<int64_t> JobSteps(const v1::Job& job, int64_t rows);

// Whether there are rows for every epoch of a job with `workers` in place of its own number, none of which is lost.
// `rows` are those of each worker's files.
//   kInvalidArgument  there are not, as above
absl::Status CheckTrainRows(const v1::Job& job, int64_t workers, int64_t rows);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_TRAIN_ROWS_H_
