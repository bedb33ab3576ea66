#include "worker/data/table_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/config/data_formats.h"
#include "worker/data/file_formats.h"

namespace tessera {
namespace {

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
  absl::StatusOr<Table> table = FileFormatOf(data.format()).read(paths, spec, conventions);
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
