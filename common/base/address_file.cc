#include "common/base/address_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status WriteAddressFile(const std::string& path, const ServerAddresses& addresses) {
  const std::string temporary = path + ".part";
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
