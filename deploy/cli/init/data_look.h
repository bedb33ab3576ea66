// What a data set is: read as a worker reads it, with a model that fits any, before there is a job.
#ifndef TESSERA_DEPLOY_CLI_INIT_DATA_LOOK_H_
#define TESSERA_DEPLOY_CLI_INIT_DATA_LOOK_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "deploy/cli/init/found_files.h"
#include "worker/data/file_format.h"

namespace tessera {

// Beside what files tell by themselves. `classes` of 0: labels are numbers that a model comes close to.
struct DataLook : RowsLook {
  FoundFiles files;
  int64_t train_rows = 0;
  int64_t test_rows = 0;
  // Values are bytes; `mean` and `stddev` are theirs over the first training rows, after the division by 255.
  bool is_bytes = false;
  double mean = 0;
  double stddev = 1;
  // Values are large, or of different sizes from feature to feature.
  bool wants_normalization = false;
};

// Reads the files.
//   kNotFound, kInvalidArgument, kDataLoss, ...  they cannot be read, in the reader's own words
absl::StatusOr<DataLook> LookAtData(const FoundFiles& files);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_INIT_DATA_LOOK_H_
