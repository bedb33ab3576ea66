// The folders of one `tessera run`: one for the children's logs, and one that is nobody else's.
#ifndef TESSERA_DEPLOY_CLI_RUN_RUN_FOLDERS_H_
#define TESSERA_DEPLOY_CLI_RUN_RUN_FOLDERS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Owns a folder with a name drawn anew, for what server 0 tells the command in files: another run's would be taken
// for its own. One thread.
class RunFolders {
 public:
  // Logs go to `log_directory`, which is made where it is missing and is this run's alone as long as the object lives;
  // an earlier run's are removed. Empty: to the private folder, in TMPDIR.
  //   kInvalidArgument  --logs cannot be written, or another run uses it
  //   kUnavailable      no folder can be made in TMPDIR
  static absl::StatusOr<std::unique_ptr<RunFolders>> Open(const std::string& log_directory);
  // Removes the private folder, but not logs that are to be kept.
  ~RunFolders();

  const std::string& logs() const { return logs_.empty() ? private_ : logs_; }
  std::string PrivatePath(absl::string_view name) const;
  void KeepLogs() { keep_ = true; }
  bool keeps_logs() const { return keep_; }

 private:
  explicit RunFolders(std::string logs) : logs_(std::move(logs)) {}
  absl::Status TakeLogs();

  const std::string logs_;
  std::string private_;
  bool keep_ = false;
  int lock_ = -1;
};

// Removes the logs of processes ("server-0.log") that lie in `folder`: those of an earlier run with more processes
// would be taken for this run's. kInvalidArgument: it cannot be read, or one cannot be removed; the message names
// --logs.
absl::Status RemoveOldLogs(const std::string& folder);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_RUN_FOLDERS_H_
