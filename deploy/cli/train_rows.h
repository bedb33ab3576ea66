// How many rows a job must have to begin on machines that are not here.
#ifndef TESSERA_DEPLOY_CLI_TRAIN_ROWS_H_
#define TESSERA_DEPLOY_CLI_TRAIN_ROWS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/counted.h"
#include "proto/job.pb.h"

namespace tessera {

// `flag` is what set the number of workers.
//   kInvalidArgument  the coordinator would refuse so many workers: a minibatch for each must be there
inline absl::Status CheckTrainRows(const v1::Job& job, int64_t workers, int64_t rows, absl::string_view flag) {
  if (job.data().partition() == "local") return absl::OkStatus();
  // Linear workers have none.
  workers = job.data().partition() == "full" ? 1 : workers - job.method().layer_separation().linear_workers();
  if (rows >= workers * job.train().batch_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("training rows are ", rows, ", want at least ",
                                                 Counted(workers, "worker"), " x ", job.train().batch_size(),
                                                 "; lower train.batch_size or ", flag));
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_TRAIN_ROWS_H_
