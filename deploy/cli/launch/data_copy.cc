#include "deploy/cli/launch/data_copy.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/config/job_paths.h"
#include "deploy/cli/launch/launch_bundle.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Names = google::protobuf::RepeatedPtrField<std::string>;

// The lists of the files that the job names.
std::vector<Names*> NamesIn(v1::Data* data) {
  return {data->mutable_train()->mutable_features(), data->mutable_train()->mutable_labels(),
          data->mutable_test()->mutable_features(), data->mutable_test()->mutable_labels()};
}

// Adds a line for the file, or for all files of the folder.
void AddFacts(const fs::path& path, std::vector<std::string>* lines) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    struct stat facts = {};
    if (stat(path.c_str(), &facts) != 0) return;
    lines->push_back(absl::StrCat(path.string(), " ", facts.st_size, " ", facts.st_mtim.tv_sec, ".",
                                  facts.st_mtim.tv_nsec));
    return;
  }
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    AddFacts(entry->path(), lines);
  }
}

}  // namespace

absl::StatusOr<DataCopy> DataCopy::Of(const v1::Job& job) {
  v1::Data data = job.data();
  std::vector<std::string> paths, lines;
  for (const Names* names : NamesIn(&data)) {
    for (const std::string& name : *names) {
      if (name.empty()) continue;
      const std::string path = DataPath(data, name);
      std::error_code error;
      if (!fs::exists(path, error)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--copy-data: \"", path, "\" is not here, want the job's data"));
      }
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    }
  }
  // Data may be large: sums of their bytes would take as long as the copy. A file that changes gets another time.
  for (const std::string& path : paths) AddFacts(path, &lines);
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return DataCopy(ShortSum(text), std::move(paths));
}

std::string DataCopy::PackCommand() const {
  // Paths stay what they are, below the folder of the copy; what symbolic links lead to is copied in their place.
  std::vector<std::string> below;
  for (const std::string& path : paths_) below.push_back("." + path);
  return absl::StrCat("tar -C / --owner=0 --group=0 --numeric-owner -chf - ", ShellWords(below));
}

std::string DataCopy::UnpackScript(const std::string& directory) const {
  // The copy takes its place once it is whole; one that another launch has made meanwhile is as good.
  const std::string data = ShellWord(directory + "/data");
  return absl::StrCat(
      "set -e; umask 022; mkdir -p ", data, "; cd ", data,
      "; part=$(mktemp -d ./part.XXXXXX); trap 'rm -rf \"$part\"' EXIT; chmod 755 \"$part\"; "
      "tar -xo -f - -C \"$part\"; mv -T \"$part\" ",
      digest_, " 2>/dev/null || test -d ", digest_);
}

void DataCopy::UseIn(v1::Job* job) const {
  v1::Data* const data = job->mutable_data();
  for (Names* names : NamesIn(data)) {
    for (std::string& name : *names) {
      if (!name.empty()) name = DataPath(job->data(), name).substr(1);
    }
  }
  data->set_directory(absl::StrCat("../../../data/", digest_));
}

}  // namespace tessera
