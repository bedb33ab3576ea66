#include "deploy/doctor/data_check.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/model_facts.h"
#include "common/config/data_formats.h"
#include "common/method/train_rows.h"
#include "worker/data/dataset.h"
#include "worker/data/images.h"
#include "worker/data/load_datasets.h"
#include "worker/data/table_reader.h"

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

// What is to be said of one set's pictures, each of which is read. Nothing of files that are none.
void AddBadPictures(const v1::Job& job, const ModelEnds& ends, absl::string_view key,
                    const v1::DataFiles& files, Findings* findings) {
  constexpr size_t kListedMax = 20;
  // Other formats were read whole by LoadDatasets.
  if (!DataFormatOf(job.data().format()).is_pictures) return;
  const absl::StatusOr<BadPictures> bad = FindBadPictures(
      FeaturePaths(job.data(), files), TableSpecOf(ends), ImageOptionsOf(job.data()), kListedMax);
  if (!bad.ok() || bad->count == 0) return;
  for (const std::string& message : bad->messages) {
    findings->push_back({Finding::Kind::kNote, absl::StrCat("data: ", message), ""});
  }
  findings->push_back(
      {Finding::Kind::kNote,
       absl::StrCat(
           "data: ", bad->count, bad->count == 1 ? " picture of " : " pictures of ", key,
           " cannot be read",
           bad->count > static_cast<int64_t>(kListedMax) ? ", of which the first are named" : ""),
       "workers skip each, and take the next one that can be read in its place; remove them, or "
       "convert them"});
}

}  // namespace

DataFindings CheckData(const v1::Job& job, const ModelShape& shape) {
  // A job that goes on takes the classes and the normalisation from the checkpoint, as workers will.
  const std::optional<ModelFacts> saved = FactsToGoOnFrom(job.checkpoint().restore());
  absl::StatusOr<Datasets> data =
      LoadDatasets(job, EndsOf(job.model(), shape), saved ? &*saved : nullptr);
  if (data.ok()) {
    Findings findings = {JudgeRows(job, *data)};
    for (const std::string& note : data->notes) {
      findings.push_back({Finding::Kind::kNote, absl::StrCat("data: ", note), ""});
    }
    const ModelEnds ends = EndsOf(job.model(), shape);
    AddBadPictures(job, ends, "data.train", job.data().train(), &findings);
    AddBadPictures(job, ends, "data.test", job.data().test(), &findings);
    return {std::move(findings), std::make_unique<Datasets>(*std::move(data))};
  }
  // Memory and broken files want different advice.
  const bool is_too_much = absl::IsResourceExhausted(data.status());
  return {{{Finding::Kind::kProblem, std::string(data.status().message()),
            is_too_much ? "workers would end with 2; docs/operating/resources.md"
                        : "workers would end with 2; correct the file, or the key that names it"}},
          nullptr};
}

}  // namespace tessera
