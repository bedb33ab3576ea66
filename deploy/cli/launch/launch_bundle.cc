#include "deploy/cli/launch/launch_bundle.h"

#include <openssl/evp.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {

std::string ShortSum(absl::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum = {};
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), sum.data(), &size, EVP_sha256(), nullptr);
  const absl::string_view bytes(reinterpret_cast<const char*>(sum.data()), size);
  return absl::BytesToHexString(bytes.substr(0, size / 2));
}

absl::StatusOr<LaunchBundle> LaunchBundle::Open(const std::string& folder) {
  // The path of the running program leads there also where PATH or a link has found it.
  std::error_code error;
  std::filesystem::path path(folder);
  if (folder.empty()) path = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  path = std::filesystem::absolute(path, error).lexically_normal();
  std::ifstream file(path / kBundleList, std::ios::binary);
  const std::string list = {std::istreambuf_iterator<char>(file), {}};
  if (list.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder.empty() ? "tessera launch" : "--bundle", ": \"", path.string(), "\" has no ",
        kBundleList, ", want a bundle to copy to the hosts: pack one with deploy/bundle.sh, and ",
        folder.empty() ? "call the tessera in it, or name it with --bundle" : "name its folder"));
  }
  return LaunchBundle(path.string(), ShortSum(list));
}

std::string LaunchBundle::PackCommand() const {
  // The list has lines "SUM  ./FILE".
  return absl::StrCat("cd ", ShellWord(folder_), " && { echo ./", kBundleList,
                      "; sed 's/^[^ ]* [ *]//' ", kBundleList,
                      "; } | tar --owner=0 --group=0 --numeric-owner -czf - --files-from=-");
}

std::string LaunchBundle::FolderIn(const std::string& directory) const {
  return absl::StrCat(directory, "/bundles/", digest_);
}

// The sums find a copy that was cut short, and the program's version that its libraries do not fit the machine.
std::string LaunchBundle::UnpackScript(const std::string& directory) const {
  const std::string bundles = ShellWord(directory + "/bundles");
  return absl::StrCat(
      "set -e; umask 022; mkdir -p ", bundles, "; cd ", bundles,
      "; part=$(mktemp -d ./part.XXXXXX); trap 'rm -rf \"$part\"' EXIT; chmod 755 \"$part\"; "
      "tar -xzo -f - -C \"$part\"; (cd \"$part\"; sha256sum -c ",
      kBundleList, " >/dev/null; ./tessera --version >/dev/null); mv -T \"$part\" ", digest_,
      // Another launch may have been faster.
      " 2>/dev/null || test -f ", digest_, "/", kBundleList);
}

}  // namespace tessera
