#include "worker/data/table_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/config/data_formats.h"
#include "worker/data/cifar.h"
#include "worker/data/csv.h"
#include "worker/data/idx.h"
#include "worker/data/libsvm.h"
#include "worker/data/npy.h"
#include "worker/data/text.h"
#include "worker/data/tokens.h"
#include "worker/data/xc.h"

namespace tessera {
namespace {

struct TableFiles {
  const v1::Data& data;
  std::vector<std::string> features;
  // As many, or none where files carry their labels.
  std::vector<std::string> labels;
};

CifarLabels CifarLabelsOf(const v1::Data& data) {
  if (data.labels().empty()) return CifarLabels::kOne;
  return data.labels() == "fine" ? CifarLabels::kFine : CifarLabels::kCoarse;
}

struct TableReader {
  absl::string_view format;
  absl::StatusOr<Table> (*read)(const TableFiles&, const TableSpec&, TrainingConventions*);
};

constexpr TableReader kTableReaders[] = {
    {"idx", [](const TableFiles& files, const TableSpec& spec,
               TrainingConventions*) { return ReadIdx(files.features, files.labels, spec); }},
    {"csv",
     [](const TableFiles& files, const TableSpec& spec, TrainingConventions* conventions) {
       return ReadCsv(files.features, spec, &conventions->columns);
     }},
    {"libsvm",
     [](const TableFiles& files, const TableSpec& spec, TrainingConventions* conventions) {
       return ReadLibsvm(files.features, spec, conventions->labels);
     }},
    {"xc", [](const TableFiles& files, const TableSpec& spec,
              TrainingConventions*) { return ReadXc(files.features, spec); }},
    {"cifar",
     [](const TableFiles& files, const TableSpec& spec, TrainingConventions*) {
       return ReadCifar(files.features, spec, CifarLabelsOf(files.data));
     }},
    {"npy", [](const TableFiles& files, const TableSpec& spec,
               TrainingConventions*) { return ReadNpy(files.features, files.labels, spec); }},
    {"images",
     [](const TableFiles& files, const TableSpec& spec, TrainingConventions* conventions) {
       return ReadImages(files.features, spec, ImageOptionsOf(files.data),
                         &conventions->class_names);
     }},
    {"tokens",
     [](const TableFiles& files, const TableSpec& spec, TrainingConventions*) {
       // The job reader has checked the word, which leaves uint16.
       return ReadTokens(files.features, spec,
                         files.data.type() == "uint32" ? TokenType::kUint32 : TokenType::kUint16);
     }},
    {"text",
     [](const TableFiles& files, const TableSpec& spec, TrainingConventions* conventions) {
       return files.data.tokenizer() == "bytes"
                  ? ReadBytes(files.features, spec)
                  : ReadCharacters(files.features, spec, &conventions->characters);
     }},
};

const TableReader& ReaderOf(absl::string_view format) {
  const auto* const found =
      std::find_if(std::begin(kTableReaders), std::end(kTableReaders),
                   [format](const TableReader& reader) { return reader.format == format; });
  // The job reader refuses a format that no row names.
  TESSERA_CHECK(found != std::end(kTableReaders));
  return *found;
}

// How many of the names are a file's, as an empty one is none's.
int64_t CountNamed(const google::protobuf::RepeatedPtrField<std::string>& files) {
  return std::count_if(files.begin(), files.end(),
                       [](const std::string& file) { return !file.empty(); });
}

absl::Status CheckFiles(const v1::DataFiles& files, const DataFormat& format,
                        absl::string_view key) {
  if (files.features().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ".features: names no file, want one or more"));
  }
  if (!format.labels_apart) {
    if (CountNamed(files.labels()) == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(key, ".labels: is given, want none: a ",
                                                   format.name, " file carries its labels"));
  }
  // Files without labels are found here, before a large file of features is read.
  const int64_t named = CountNamed(files.labels());
  if (named == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ".labels: is not given, want a file, as data.format is ", format.name));
  }
  if (named == files.features_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ".labels: names ", named, named == 1 ? " file" : " files", ", want ",
                   files.features_size(), ", one for each of ", key, ".features"));
}

// An empty file gets one message, whatever its format wants at its beginning.
absl::Status CheckNotEmpty(const std::string& path) {
  struct stat about;
  // A file that is not there, or a pipe, has no size to go by.
  // The reader that opens the file says what else is wrong with it.
  if (stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_size > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": has no rows: it is empty, 0 bytes"));
}

}  // namespace

std::string DataFilePath(const v1::Data& data, const std::string& file) {
  const std::string& directory = data.directory();
  // An absolute path stands for itself, as on a command line.
  if (directory.empty() || (!file.empty() && file[0] == '/')) return file;
  return absl::StrCat(directory, directory.back() == '/' ? "" : "/", file);
}

std::vector<std::string> FeaturePaths(const v1::Data& data, const v1::DataFiles& files) {
  std::vector<std::string> paths;
  for (const std::string& file : files.features()) paths.push_back(DataFilePath(data, file));
  return paths;
}

ImageOptions ImageOptionsOf(const v1::Data& data) {
  return {data.resize(), data.crop(), std::max(1, static_cast<int>(data.threads()))};
}

// A function's try block: allocations anywhere in a reader end here.
absl::StatusOr<Table> ReadTable(const v1::Data& data, const v1::DataFiles& files,
                                absl::string_view key, const TableSpec& spec,
                                TrainingConventions* conventions) try {
  TESSERA_RETURN_IF_ERROR(CheckFiles(files, DataFormatOf(data.format()), key));
  TableFiles paths{data, FeaturePaths(data, files), {}};
  for (const std::string& path : paths.features) TESSERA_RETURN_IF_ERROR(CheckNotEmpty(path));
  for (const std::string& file : files.labels()) {
    if (file.empty()) continue;
    paths.labels.push_back(DataFilePath(data, file));
    TESSERA_RETURN_IF_ERROR(CheckNotEmpty(paths.labels.back()));
  }
  absl::StatusOr<Table> table = ReaderOf(data.format()).read(paths, spec, conventions);
  // A file of blank lines, for one.
  if (table.ok() && table->rows == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(paths.features[0], ": has no rows, want at least one"));
  }
  return table;
} catch (const std::bad_alloc&) {
  // Readers of text cannot know beforehand how many rows there will be.
  return absl::ResourceExhaustedError(absl::StrCat(
      key, ".features: no memory for the rows of ", DataFilePath(data, files.features(0)),
      files.features_size() > 1 ? absl::StrCat(" and ", files.features_size() - 1, " more") : "",
      ", want a smaller data set or a machine with more"));
}

}  // namespace tessera
