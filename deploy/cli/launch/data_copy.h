// A job's data files, as they are copied to the machines that have its workers.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_DATA_COPY_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_DATA_COPY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace tessera {

// Constant after construction; any thread.
class DataCopy {
 public:
  // What is to be copied: the files and folders that `job` names under `data`, whose paths are absolute.
  //   kInvalidArgument  one is not there
  static absl::StatusOr<DataCopy> Of(const v1::Job& job);

  // The digest of names, sizes and times: what is changed here is copied again.
  const std::string& digest() const { return digest_; }
  // A shell's command here that writes all to stdout.
  std::string PackCommand() const;
  // A script there that reads this, and puts it below `directory` ("data/DIGEST").
  std::string UnpackScript(const std::string& directory) const;
  // Has `job` read the copy; its file lies in a folder three below `directory`.
  void UseIn(v1::Job* job) const;

 private:
  DataCopy(std::string digest, std::vector<std::string> paths)
      : digest_(std::move(digest)), paths_(std::move(paths)) {}

  std::string digest_;
  std::vector<std::string> paths_;  // absolute
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_DATA_COPY_H_
