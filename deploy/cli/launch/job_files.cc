#include "deploy/cli/launch/job_files.h"

#include <string.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/config/job_print.h"
#include "deploy/cli/launch/supervised_files.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

// A secret is nobody's but its user's from its first byte on.
absl::Status WriteSecret(const std::string& path, absl::string_view text) {
  const mode_t before = umask(077);
  std::ofstream file(path, std::ios::binary);
  umask(before);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(path, ": cannot be written; is there room on its disk?"));
}

// Copies the file that a key of `security` names, if it does, and has the key name the copy.
absl::Status CopyKeyFile(const std::string& folder, absl::string_view key, absl::string_view name,
                         std::string* path) {
  if (path->empty()) return absl::OkStatus();
  std::ifstream file(*path, std::ios::binary);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("security.", key, ": \"", *path, "\" cannot be read: ", strerror(errno)));
  }
  const std::string text = {std::istreambuf_iterator<char>(file), {}};
  *path = std::string(name);
  return WriteSecret(absl::StrCat(folder, "/", name), text);
}

}  // namespace

void ListServers(const JobPlacement& placement, v1::Job* job) {
  v1::Servers* const servers = job->mutable_cluster()->mutable_servers();
  servers->clear_addresses();
  for (const PlacedProcess& server : placement.servers) servers->add_addresses(server.address);
  servers->set_count(static_cast<int64_t>(placement.servers.size()));
}

absl::Status WriteJobFiles(const std::string& folder, v1::Job job, const DataCopy* data) {
  // Files are private by their own rights, and by the folder's, which is made anew.
  if (mkdir(folder.c_str(), 0700) != 0) {
    return absl::UnavailableError(absl::StrCat(folder, ": cannot be made: ", strerror(errno)));
  }
  v1::Security* const security = job.mutable_security();
  TESSERA_RETURN_IF_ERROR(
      CopyKeyFile(folder, "certificate", "certificate.pem", security->mutable_certificate()));
  TESSERA_RETURN_IF_ERROR(
      CopyKeyFile(folder, "private_key", "private_key.pem", security->mutable_private_key()));
  TESSERA_RETURN_IF_ERROR(
      CopyKeyFile(folder, "authority", "authority.pem", security->mutable_authority()));
  TESSERA_RETURN_IF_ERROR(
      CopyKeyFile(folder, "token_file", "tokens", security->mutable_token_file()));
  if (data != nullptr) data->UseIn(&job);
  return WriteSecret(absl::StrCat(folder, "/", kLaunchedJob), PrintJob(job));
}

// Numbers of users here mean others there: all become those of whoever unpacks.
std::string PackJobCommand(const std::string& folder) {
  return absl::StrCat("tar -C ", ShellWord(folder),
                      " --owner=0 --group=0 --numeric-owner -czf - .");
}

// The lease is there before any process: it begins to count when the job's files come.
std::string UnpackJobScript(const std::string& folder) {
  const SupervisedFiles files(folder, "");
  return absl::StrCat("set -e; umask 077; mkdir -p ", ShellWord(files.job()), "; tar -xzo -f - -C ",
                      ShellWord(files.job()), "; touch ", ShellWord(files.lease()));
}

}  // namespace tessera
