#include "deploy/doctor/data_check.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/data/dataset.h"

namespace tessera {

Findings CheckData(const v1::Job& job, const ModelShape& shape) {
  const absl::StatusOr<Datasets> data = LoadDatasets(job.data(), EndsOf(job.model(), shape));
  if (!data.ok()) {
    return {{Finding::Kind::kProblem, std::string(data.status().message()),
             "workers would end with 2; correct the file, or the key that names it"}};
  }
  const int64_t rows = data->train.rows(), batch = job.train().batch_size();
  // Where rows are each worker's own, nobody here knows the others'. Linear workers have none.
  const int64_t with_data = job.cluster().workers() - job.method().layer_separation().linear_workers();
  const int64_t parts = job.data().partition() == "local" ? 1 : with_data;
  if (rows < parts * batch) {
    return {{Finding::Kind::kProblem,
             absl::StrCat("data.train: rows are ", rows, ", want at least ", parts, " x ", batch,
                          ", a minibatch for each worker"),
             "lower train.batch_size or cluster.workers"}};
  }
  return {{Finding::Kind::kGood,
           absl::StrCat("data: ", rows, " rows to train on and ", data->test.rows(), " to test with"), ""}};
}

}  // namespace tessera
