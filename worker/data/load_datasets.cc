#include "worker/data/load_datasets.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/machine_memory.h"
#include "common/config/data_formats.h"
#include "worker/data/data_notes.h"
#include "worker/data/label_map.h"
#include "worker/data/limits.h"
#include "worker/data/table_reader.h"

namespace tessera {
namespace {

// Whether test rows are what training rows are, as far as their files say.
absl::Status CheckAlike(const v1::Data& data, const Table& train, const Table& test) {
  const std::string train_path = DataFilePath(data, data.train().features(0));
  const std::string test_path = DataFilePath(data, data.test().features(0));
  TESSERA_RETURN_IF_ERROR(CheckSameKind(test_path, test, train_path, train));
  return CheckSameShape(test_path, test, train);
}

double MeanOf(const v1::Normalize& normalize) {
  return normalize.mean_size() > 0 ? normalize.mean(0) : 0;
}

double StddevOf(const v1::Normalize& normalize) {
  return normalize.stddev_size() > 0 ? normalize.stddev(0) : 1;
}

absl::Status CheckNormalize(const v1::Normalize& normalize) {
  // Where the inverse is not finite, neither are the inputs.
  const double mean = MeanOf(normalize), stddev = StddevOf(normalize);
  const auto inverse = static_cast<float>(1 / stddev);
  if (stddev > 0 && std::isfinite(inverse) && inverse > 0 &&
      std::abs(mean) <= std::numeric_limits<float>::max()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("data.normalize: mean is ", mean,
                                                 " and stddev is ", stddev,
                                                 ", want finite numbers and a positive stddev"));
}

// What a model was trained with, where other files are read.
absl::Status CheckFacts(const v1::Data& data, const ModelFacts& facts, const ModelEnds& ends) {
  const size_t entries = facts.mean.size();
  if (entries != 1 && static_cast<int64_t>(entries) != ends.inputs) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: normalisation is of ", entries,
                                                   " inputs, and the job's model has ",
                                                   ends.inputs));
  }
  const DataFormat& format = DataFormatOf(data.format());
  if (format.stays_sparse && (entries != 1 || facts.mean[0] != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.format: is ", format.name,
        ", whose rows stay sparse, and the checkpoint's normalisation would make "
        "zeros something else; name files of the format that the model was trained with"));
  }
  if (!facts.labels.empty() && !format.numbers_labels) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.format: is ", format.name, ", and the checkpoint's classes 0 to ",
                     facts.labels.size() - 1, " are the labels ", facts.labels.front(), " to ",
                     facts.labels.back(), " of libsvm files; name files of that format"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t DatasetBytesMaxHere() {
  const std::optional<MachineMemory> memory = ReadWholeMemory();
  return memory ? memory->bytes : kDatasetBytesMax;
}

absl::StatusOr<Datasets> LoadDatasets(const v1::Data& data, const ModelEnds& ends,
                                      int64_t bytes_max, const ModelFacts* facts) {
  TESSERA_CHECK(ends.inputs >= 1 && ends.outputs >= 1);
  if (ends.inputs > kFeaturesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.input: product is ", ends.inputs, ", want at most ", kFeaturesMax));
  }
  const bool per_feature = data.normalize().per_feature();
  if (data.has_normalize() && !per_feature) {
    TESSERA_RETURN_IF_ERROR(CheckNormalize(data.normalize()));
  }
  const DataFormat* const format = FindDataFormat(data.format());
  if (format == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.format: is \"", data.format(), "\", want ", DataFormatNames()));
  }
  if (format->stays_sparse && (per_feature || MeanOf(data.normalize()) != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.normalize: would make zeros something else, want only a stddev: the "
                     "rows of ",
                     format->name, " files stay sparse"));
  }
  TableSpec spec = TableSpecOf(ends);
  spec.local_files = data.partition() == "local";
  spec.bytes_max = bytes_max;
  TrainingConventions conventions(data);
  if (facts != nullptr) {
    TESSERA_RETURN_IF_ERROR(CheckFacts(data, *facts, ends));
    TESSERA_ASSIGN_OR_RETURN(conventions.labels, LabelMap::Of(facts->labels, spec));
  }
  TESSERA_ASSIGN_OR_RETURN(Table train,
                           ReadTable(data, data.train(), "data.train", spec, &conventions));
  spec.bytes_max -= train.bytes();
  TESSERA_ASSIGN_OR_RETURN(Table test,
                           ReadTable(data, data.test(), "data.test", spec, &conventions));
  TESSERA_RETURN_IF_ERROR(CheckAlike(data, train, test));
  if (facts != nullptr) {
    TESSERA_RETURN_IF_ERROR(
        CheckTrainedKind(DataFilePath(data, data.train().features(0)), train, facts->bytes));
  }
  std::vector<std::string> notes = NotesOn(train, test, spec);

  Normalization normalization;
  if (facts != nullptr) {
    normalization = {facts->mean, facts->stddev};
  } else if (per_feature) {
    normalization = NormalizationOf(train);
  } else if (data.has_normalize()) {
    normalization = {{MeanOf(data.normalize())}, {StddevOf(data.normalize())}};
  }
  ModelFacts determined;
  if (conventions.labels) determined.labels = conventions.labels->labels();
  determined.mean = normalization.mean;
  determined.stddev = normalization.stddev;
  determined.bytes = train.is_bytes();
  return Datasets{Dataset(std::move(train), normalization, ends),
                  Dataset(std::move(test), normalization, ends), std::move(determined),
                  std::move(notes)};
}

absl::StatusOr<Datasets> LoadDatasets(const v1::Job& job, const ModelEnds& ends,
                                      const ModelFacts* facts) {
  return LoadDatasets(job.data(), ends,
                      std::max(job.cluster().memory_limit(), DatasetBytesMaxHere()), facts);
}

bool NormalizesOtherwise(const v1::Job& job, const ModelFacts& facts) {
  const v1::Data& data = job.data();
  int64_t inputs = 1;
  for (const int64_t extent : job.model().input()) inputs *= extent;
  if (data.normalize().per_feature()) return static_cast<int64_t>(facts.mean.size()) != inputs;
  const double mean = data.has_normalize() ? MeanOf(data.normalize()) : 0;
  const double stddev = data.has_normalize() ? StddevOf(data.normalize()) : 1;
  return facts.mean.size() > 1 || facts.mean[0] != mean || facts.stddev[0] != stddev;
}

}  // namespace tessera
