#include "deploy/cli/run/run_folders.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace tessera {
namespace {

absl::Status LogsError(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--logs: \"", path, "\": ", why));
}

// Whether the name is that of a log, as job_children.h names them: "server-0.log".
bool IsLog(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, ".log")) return false;
  if (!absl::ConsumePrefix(&name, "server-") && !absl::ConsumePrefix(&name, "worker-")) {
    return false;
  }
  return !name.empty() && std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunFolders>> RunFolders::Open(const std::string& log_directory) {
  auto folders = absl::WrapUnique(new RunFolders(log_directory));
  if (!log_directory.empty()) TESSERA_RETURN_IF_ERROR(folders->TakeLogs());
  // The folder is made beside logs that somebody wants, so that no other folder need be writable.
  const char* temporary = getenv("TMPDIR");
  const std::string parent = !log_directory.empty() ? log_directory
                             : temporary != nullptr ? temporary
                                                    : "/tmp";
  std::string made = absl::StrCat(parent, "/tessera-run-XXXXXX");
  if (mkdtemp(made.data()) == nullptr) {
    const std::string why = strerror(errno);
    if (!log_directory.empty()) {
      return LogsError(log_directory, absl::StrCat("cannot be written: ", why));
    }
    return absl::UnavailableError(absl::StrCat("\"", parent,
                                               "\": no folder for logs can be made there: ", why,
                                               "; set TMPDIR to another"));
  }
  folders->private_ = std::move(made);
  return folders;
}

absl::Status RunFolders::TakeLogs() {
  std::error_code error;
  std::filesystem::create_directories(logs_, error);
  if (error) return LogsError(logs_, error.message());
  lock_ = open(logs_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) return LogsError(logs_, strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return RemoveOldLogs(logs_);
  // Some network file systems cannot lock a folder; then nobody is asked, and what is there may be another's.
  if (errno != EWOULDBLOCK) return absl::OkStatus();
  return LogsError(logs_, "another `tessera run` writes its logs there; name another folder");
}

absl::Status RemoveOldLogs(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> old;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsLog(entry->path().filename().string())) old.push_back(entry->path());
  }
  if (error) return LogsError(folder, error.message());
  for (const std::filesystem::path& path : old) {
    std::filesystem::remove(path, error);
    if (error) {
      return LogsError(folder, absl::StrCat("an old log cannot be removed: ", error.message()));
    }
  }
  return absl::OkStatus();
}

RunFolders::~RunFolders() {
  std::error_code error;
  if (!private_.empty() && !(keep_ && logs_.empty())) std::filesystem::remove_all(private_, error);
  if (lock_ >= 0) close(lock_);
}

std::string RunFolders::PrivatePath(absl::string_view name) const {
  return absl::StrCat(private_, "/", name);
}

}  // namespace tessera
