#include "deploy/doctor/data_check.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/model_facts.h"
#include "common/method/train_rows.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"

namespace tessera {

namespace {

// Whether there are enough rows, and what is left over of each epoch.
Finding JudgeRows(const v1::Job& job, const Datasets& data) {
  const int64_t rows = data.train.rows();
  const absl::Status enough = CheckTrainRows(job, job.cluster().workers(), rows);
  if (enough.ok()) {
    return {
        Finding::Kind::kGood,
        absl::StrCat("data: ", rows, " rows to train on and ", data.test.rows(), " to test with"),
        ""};
  }
  // Nobody here knows the others' rows where rows are each worker's own.
  const int64_t workers = job.cluster().workers(), batch_size = job.train().batch_size();
  if (job.data().partition() == "local" && workers > 1) {
    return {
        Finding::Kind::kNote,
        absl::StrCat("data: training rows are ", rows, ", less than a minibatch of ", batch_size),
        absl::StrCat("the job begins only if the ", workers, " workers have ", workers, " x ",
                     batch_size, " together")};
  }
  return {Finding::Kind::kProblem, absl::StrCat("data: ", enough.message()),
          "lower train.batch_size or cluster.workers"};
}

}  // namespace

DataFindings CheckData(const v1::Job& job, const ModelShape& shape) {
  const std::optional<ModelFacts> saved = FactsToGoOnFrom(job.checkpoint().restore());
  absl::StatusOr<Datasets> data =
      LoadDatasets(job, EndsOf(job.model(), shape), saved ? &*saved : nullptr);
  if (data.ok()) {
    Findings findings = {JudgeRows(job, *data)};
    for (const std::string& note : data->notes) {
      findings.push_back({Finding::Kind::kNote, absl::StrCat("data: ", note), ""});
    }
    return {std::move(findings), std::make_unique<Datasets>(*std::move(data))};
  }
  return {{{Finding::Kind::kProblem, std::string(data.status().message()),
            "workers would end with 2; correct the file, or the key that names it"}},
          nullptr};
}

}  // namespace tessera
