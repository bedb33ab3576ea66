// From a job's data section to tables, and from tables to data sets.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/machine_memory.h"
#include "worker/data/cifar.h"
#include "worker/data/csv.h"
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

// `labels` belongs to libsvm: made by the training set, used by the test set.
absl::StatusOr<Table> ReadTable(const v1::Data& data, const v1::DataFiles& files,
                                absl::string_view key, const TableSpec& spec,
                                std::optional<LabelMap>& labels) {
  TESSERA_RETURN_IF_ERROR(CheckFiles(files, data.format(), key));
  std::vector<std::string> paths;
  for (const std::string& file : files.features()) paths.push_back(Resolve(data.directory(), file));
  const std::string& format = data.format();
  absl::StatusOr<Table> table = absl::InvalidArgumentError(
      absl::StrCat("data.format: is \"", format, "\", want idx, csv, libsvm, xc, cifar or npy"));
  if (format == "idx") table = ReadIdx(paths[0], Resolve(data.directory(), files.labels()), spec);
  if (format == "npy") table = ReadNpy(paths[0], Resolve(data.directory(), files.labels()), spec);
  if (format == "csv") table = ReadCsv(paths, spec);
  if (format == "libsvm") table = ReadLibsvm(paths, spec, labels);
  if (format == "xc") table = ReadXc(paths, spec);
  if (format == "cifar") table = ReadCifar(paths, spec);
  if (table.ok() && table->rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat(paths[0], ": has no rows, want at least one"));
  }
  return table;
}

// The same where memory comes to its end: other readers do not know how much it will be.
absl::StatusOr<Table> ReadTableIfRoom(const v1::Data& data, const v1::DataFiles& files,
                                      absl::string_view key, const TableSpec& spec,
                                      std::optional<LabelMap>& labels) {
  try {
    return ReadTable(data, files, key, spec, labels);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        key, ".features: no memory for the rows of ", Resolve(data.directory(), files.features(0)),
        files.features_size() > 1 ? absl::StrCat(" and ", files.features_size() - 1, " more") : "",
        ", want a smaller data set or a machine with more"));
  }
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

}  // namespace

TableSpec TableSpecOf(const ModelEnds& ends) {
  TableSpec spec;
  spec.features = ends.inputs;
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
  return ends;
}

int64_t DatasetBytesMaxHere() {
  const std::optional<MachineMemory> memory = ReadWholeMemory();
  return memory ? memory->bytes : kDatasetBytesMax;
}

absl::StatusOr<Datasets> LoadDatasets(const v1::Data& data, const ModelEnds& ends,
                                      int64_t bytes_max) {
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
  TESSERA_ASSIGN_OR_RETURN(Table train,
                           ReadTableIfRoom(data, data.train(), "data.train", spec, labels));
  spec.bytes_max -= train.bytes();
  TESSERA_ASSIGN_OR_RETURN(Table test,
                           ReadTableIfRoom(data, data.test(), "data.test", spec, labels));

  Normalization normalization;
  if (per_feature) {
    normalization = NormalizationOf(train);
  } else if (data.has_normalize()) {
    normalization = {{data.normalize().mean()}, {data.normalize().stddev()}};
  }
  return Datasets{Dataset(std::move(train), normalization, ends),
                  Dataset(std::move(test), normalization, ends)};
}

absl::StatusOr<Datasets> LoadDatasets(const v1::Job& job, const ModelEnds& ends) {
  return LoadDatasets(job.data(), ends,
                      std::max(job.cluster().memory_limit(), DatasetBytesMaxHere()));
}

}  // namespace tessera
