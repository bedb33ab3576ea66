#include "common/config/job_output.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/config/job_paths.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Whether the file lies in the folder of one checkpoint: what checkpoint.restore names, or a folder in it or in
// checkpoint.directory.
bool IsOfCheckpoint(const fs::path& file, const v1::Checkpoint& checkpoint) {
  std::error_code error;
  const fs::path folder = fs::canonical(file, error).parent_path();
  if (error || !fs::exists(folder / "manifest.json", error)) return false;
  const auto is = [&error](const fs::path& at, const std::string& named) {
    return !named.empty() && fs::equivalent(at, named, error);
  };
  return is(folder, checkpoint.restore()) || is(folder.parent_path(), checkpoint.restore()) ||
         is(folder.parent_path(), checkpoint.directory());
}

}  // namespace

absl::Status CheckIsNoJobInput(absl::string_view flag, const std::string& path,
                               const std::string& job_path, const v1::Job& job) {
  if (path.empty()) return absl::OkStatus();
  std::vector<std::string> inputs = PathsOf(job);
  inputs.push_back(job_path);
  TESSERA_RETURN_IF_ERROR(CheckIsNoInput(flag, path, inputs));
  if (IsOfCheckpoint(path, job.checkpoint())) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": \"", path, "\" is a file of a checkpoint; name another file"));
  }
  return absl::OkStatus();
}

absl::Status CheckJobOutput(absl::string_view flag, const std::string& path,
                            const std::string& job_path, const v1::Job& job) {
  TESSERA_RETURN_IF_ERROR(CheckIsNoJobInput(flag, path, job_path, job));
  return CheckWritable(flag, path);
}

}  // namespace tessera
