#include "deploy/doctor/data_check.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/method/train_rows.h"
#include "worker/data/dataset.h"

namespace tessera {

Findings CheckData(const v1::Job& job, const ModelShape& shape) {
  const absl::StatusOr<Datasets> data = LoadDatasets(job.data(), EndsOf(job.model(), shape));
  if (!data.ok()) {
    return {{Finding::Kind::kProblem, std::string(data.status().message()),
             "workers would end with 2; correct the file, or the key that names it"}};
  }
  const int64_t rows = data->train.rows();
  if (const absl::Status enough = CheckTrainRows(job, job.cluster().workers(), rows); !enough.ok()) {
    // Where rows are each worker's own, nobody here knows the others'.
    if (job.data().partition() == "local" && job.cluster().workers() > 1) {
      return {{Finding::Kind::kNote,
               absl::StrCat("data: training rows are ", rows, ", less than a minibatch of ", job.train().batch_size()),
               absl::StrCat("the job begins only if the ", job.cluster().workers(), " workers have ",
                            job.cluster().workers(), " x ", job.train().batch_size(), " together")}};
    }
    return {{Finding::Kind::kProblem, absl::StrCat("data: ", enough.message()),
             "lower train.batch_size or cluster.workers"}};
  }
  return {{Finding::Kind::kGood,
           absl::StrCat("data: ", rows, " rows to train on and ", data->test.rows(), " to test with"), ""}};
}

}  // namespace tessera
