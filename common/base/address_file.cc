#include "common/base/address_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace tessera {

namespace {

// What is written takes its place when it is whole.
std::string PartOf(const std::string& path) { return path + ".part"; }

}  // namespace

absl::Status CheckAddressFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  struct stat there;
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--address-file: \"", path, "\" is no file; name a file in a folder that exists"));
  }
  const std::string part = PartOf(path);
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--address-file: \"", path,
                                                   "\" cannot be written: ", strerror(errno),
                                                   "; name a file in a folder that exists"));
  }
  close(file);
  unlink(part.c_str());
  return absl::OkStatus();
}

absl::Status WriteAddressFile(const std::string& path, const ServerAddresses& addresses) {
  const std::string temporary = PartOf(path);
  errno = 0;
  std::ofstream file(temporary, std::ios::trunc);
  file << addresses.services << "\n";
  if (!addresses.metrics.empty()) file << addresses.metrics << "\n";
  file.close();
  std::error_code error;
  // Of the stream's last call; a full disk says so when it is flushed.
  if (!file) error.assign(errno, std::generic_category());
  if (file) std::filesystem::rename(temporary, path, error);
  if (file && !error) return absl::OkStatus();
  unlink(temporary.c_str());
  // `tessera run` names one, too: the flag would tell its user nothing.
  return absl::InvalidArgumentError(
      absl::StrCat("address file: \"", path,
                   "\" cannot be written: ", error ? error.message() : "the reason is not known"));
}

std::optional<ServerAddresses> ReadAddressFile(const std::string& path) {
  std::ifstream file(path);
  ServerAddresses addresses;
  if (!std::getline(file, addresses.services) || addresses.services.empty()) return std::nullopt;
  std::getline(file, addresses.metrics);
  return addresses;
}

}  // namespace tessera
