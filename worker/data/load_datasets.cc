// From a job's data section to tables, and from tables to data sets.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/machine_memory.h"
#include "worker/data/cifar.h"
#include "worker/data/csv.h"
#include "worker/data/csv_columns.h"
#include "worker/data/data_notes.h"
#include "worker/data/dataset.h"
#include "worker/data/idx.h"
#include "worker/data/label_map.h"
#include "worker/data/libsvm.h"
#include "worker/data/limits.h"
#include "worker/data/npy.h"
#include "worker/data/xc.h"

namespace tessera {
namespace {

std::string Resolve(const std::string& directory, const std::string& file) {
  if (directory.empty() || (!file.empty() && file[0] == '/')) return file;
  return absl::StrCat(directory, directory.back() == '/' ? "" : "/", file);
}

absl::Status CheckFiles(const v1::DataFiles& files, const std::string& format,
                        absl::string_view key) {
  if (files.features().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ".features: names no file, want one or more"));
  }
  const bool labels_apart = format == "idx" || format == "npy";
  if (!labels_apart && !files.labels().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ".labels: is given, want none: a ", format, " file carries its labels"));
  }
  if (!labels_apart) return absl::OkStatus();
  if (files.features_size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(key, ".features: names ", files.features_size(),
                                                   " files, want one, as data.format is ", format));
  }
  if (files.labels().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ".labels: is not given, want a file, as data.format is ", format));
  }
  return absl::OkStatus();
}

// Empty files are told in the same words whatever the format wants at their beginning.
absl::Status CheckNotEmpty(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    struct stat about;
    // Whoever opens it says what else is wrong with it.
    if (stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_size > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no rows: it is empty, 0 bytes"));
  }
  return absl::OkStatus();
}

CifarLabels CifarLabelsOf(const v1::Data& data) {
  if (data.labels().empty()) return CifarLabels::kOne;
  return data.labels() == "fine" ? CifarLabels::kFine : CifarLabels::kCoarse;
}

// `labels` belongs to libsvm and `columns` to csv: made by the training set, used by the test set.
absl::StatusOr<Table> ReadTable(const v1::Data& data, const v1::DataFiles& files,
                                absl::string_view key, const TableSpec& spec,
                                std::optional<LabelMap>& labels, CsvColumns& columns) {
  TESSERA_RETURN_IF_ERROR(CheckFiles(files, data.format(), key));
  std::vector<std::string> paths;
  for (const std::string& file : files.features()) paths.push_back(Resolve(data.directory(), file));
  const std::string& format = data.format();
  const std::string labels_path =
      files.labels().empty() ? "" : Resolve(data.directory(), files.labels());
  TESSERA_RETURN_IF_ERROR(CheckNotEmpty(paths));
  TESSERA_RETURN_IF_ERROR(CheckNotEmpty({labels_path}));
  absl::StatusOr<Table> table = absl::InvalidArgumentError(
      absl::StrCat("data.format: is \"", format, "\", want idx, csv, libsvm, xc, cifar or npy"));
  if (format == "idx") table = ReadIdx(paths[0], labels_path, spec);
  if (format == "npy") table = ReadNpy(paths[0], labels_path, spec);
  if (format == "csv") table = ReadCsv(paths, spec, &columns);
  if (format == "libsvm") table = ReadLibsvm(paths, spec, labels);
  if (format == "xc") table = ReadXc(paths, spec);
  if (format == "cifar") table = ReadCifar(paths, spec, CifarLabelsOf(data));
  if (table.ok() && table->rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat(paths[0], ": has no rows, want at least one"));
  }
  return table;
}

// The same where memory comes to its end: other readers do not know how much it will be.
absl::StatusOr<Table> ReadTableIfRoom(const v1::Data& data, const v1::DataFiles& files,
                                      absl::string_view key, const TableSpec& spec,
                                      std::optional<LabelMap>& labels, CsvColumns& columns) {
  try {
    return ReadTable(data, files, key, spec, labels, columns);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        key, ".features: no memory for the rows of ", Resolve(data.directory(), files.features(0)),
        files.features_size() > 1 ? absl::StrCat(" and ", files.features_size() - 1, " more") : "",
        ", want a smaller data set or a machine with more"));
  }
}

// Whether test rows are what training rows are, as far as their files say.
absl::Status CheckAlike(const v1::Data& data, const Table& train, const Table& test) {
  const std::string train_path = Resolve(data.directory(), data.train().features(0));
  const std::string test_path = Resolve(data.directory(), data.test().features(0));
  TESSERA_RETURN_IF_ERROR(CheckSameKind(test_path, test, train_path, train));
  return CheckSameShape(test_path, test, train);
}

absl::Status CheckNormalize(const v1::Normalize& normalize) {
  // Where the inverse is not finite, neither are the inputs.
  const auto inverse = static_cast<float>(1 / normalize.stddev());
  if (normalize.stddev() > 0 && std::isfinite(inverse) && inverse > 0 &&
      std::abs(normalize.mean()) <= std::numeric_limits<float>::max()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("data.normalize: mean is ", normalize.mean(),
                                                 " and stddev is ", normalize.stddev(),
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
  if (data.format() == "xc" && (entries != 1 || facts.mean[0] != 0)) {
    return absl::InvalidArgumentError(
        "data.format: is xc, whose rows stay sparse, and the checkpoint's normalisation would make "
        "zeros something else; name files of the format that the model was trained with");
  }
  if (!facts.labels.empty() && data.format() != "libsvm") {
    return absl::InvalidArgumentError(
        absl::StrCat("data.format: is ", data.format(), ", and the checkpoint's classes 0 to ",
                     facts.labels.size() - 1, " are the labels ", facts.labels.front(), " to ",
                     facts.labels.back(), " of libsvm files; name files of that format"));
  }
  return absl::OkStatus();
}

}  // namespace

TableSpec TableSpecOf(const ModelEnds& ends) {
  TableSpec spec;
  spec.features = ends.inputs;
  spec.input = ends.input;
  // One sigmoid output tells two classes apart.
  spec.one_output = ends.sigmoid && ends.outputs == 1;
  spec.classes = spec.one_output ? 2 : ends.outputs;
  spec.class_sets = ends.sigmoid && ends.outputs > 1;
  return spec;
}

ModelEnds EndsOf(const v1::Model& model, const ModelShape& shape) {
  ModelEnds ends;
  ends.inputs = shape.inputs();
  ends.outputs = shape.outputs();
  ends.sigmoid = model.loss() == "sigmoid_cross_entropy";
  ends.input.assign(model.input().begin(), model.input().end());
  return ends;
}

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
  if (data.format() == "xc" && (per_feature || data.normalize().mean() != 0)) {
    return absl::InvalidArgumentError(
        "data.normalize: would make zeros something else, want only a stddev: the rows of an xc "
        "file stay sparse");
  }
  TableSpec spec = TableSpecOf(ends);
  spec.local_files = data.partition() == "local";
  spec.bytes_max = bytes_max;
  std::optional<LabelMap> labels;
  if (facts != nullptr) {
    TESSERA_RETURN_IF_ERROR(CheckFacts(data, *facts, ends));
    TESSERA_ASSIGN_OR_RETURN(labels, LabelMap::Of(facts->labels, spec));
  }
  CsvColumns columns(data.label_column());
  TESSERA_ASSIGN_OR_RETURN(
      Table train, ReadTableIfRoom(data, data.train(), "data.train", spec, labels, columns));
  spec.bytes_max -= train.bytes();
  TESSERA_ASSIGN_OR_RETURN(Table test,
                           ReadTableIfRoom(data, data.test(), "data.test", spec, labels, columns));
  TESSERA_RETURN_IF_ERROR(CheckAlike(data, train, test));
  if (facts != nullptr) {
    TESSERA_RETURN_IF_ERROR(
        CheckTrainedKind(Resolve(data.directory(), data.train().features(0)), train, facts->bytes));
  }
  std::vector<std::string> notes = NotesOn(train, test, spec);

  Normalization normalization;
  if (facts != nullptr) {
    normalization = {facts->mean, facts->stddev};
  } else if (per_feature) {
    normalization = NormalizationOf(train);
  } else if (data.has_normalize()) {
    normalization = {{data.normalize().mean()}, {data.normalize().stddev()}};
  }
  ModelFacts determined;
  if (labels) determined.labels = labels->labels();
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
  const double mean = data.has_normalize() ? data.normalize().mean() : 0;
  const double stddev = data.has_normalize() ? data.normalize().stddev() : 1;
  return facts.mean.size() > 1 || facts.mean[0] != mean || facts.stddev[0] != stddev;
}

}  // namespace tessera
