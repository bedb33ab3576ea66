#include "common/base/address_file.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/output_file.h"

namespace tessera {

absl::Status CheckAddressFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  struct stat there;
  const bool is_there = stat(path.c_str(), &there) == 0;
  if (is_there && !S_ISREG(there.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--address-file: \"", path, "\" is no file; name a file in a folder that exists"));
  }
  // Whether the file can be written is tried beside it, as whoever waits for it must not see an empty one appear.
  if (!is_there) {
    const OutputFile beside(path);
    if (beside.error() == 0 && beside.is_beside()) return absl::OkStatus();
  }
  return CheckWritable("--address-file", path);
}

absl::Status WriteAddressFile(const std::string& path, const ServerAddresses& addresses) {
  std::string text = addresses.services;
  const bool has_page = !addresses.page.empty();
  if (has_page || !addresses.metrics.empty()) absl::StrAppend(&text, "\n", addresses.metrics);
  if (has_page) absl::StrAppend(&text, "\n", addresses.page);
  // `tessera run` names one, too: the flag would tell its user nothing.
  return WriteOutput("address file", path, text);
}

// A file that is still being waited for is no error: whoever started the server looks again.
std::optional<ServerAddresses> ReadAddressFile(const std::string& path) {
  std::ifstream file(path);
  ServerAddresses addresses;
  if (!std::getline(file, addresses.services) || addresses.services.empty()) return std::nullopt;
  std::getline(file, addresses.metrics);
  std::getline(file, addresses.page);
  return addresses;
}

}  // namespace tessera
