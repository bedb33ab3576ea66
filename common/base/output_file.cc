#include "common/base/output_file.h"

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

// As the system's own.
constexpr int kLinksMax = 40;

// By errno.
absl::Status NotWritable(absl::string_view flag, const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", path,
                                                 "\" cannot be written: ", strerror(errno),
                                                 "; name a file in a folder that exists"));
}

}  // namespace

absl::Status CheckWritable(absl::string_view flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  // Whoever reads a pipe takes its first writer's end for all there is.
  struct stat there;
  const bool is_there = stat(path.c_str(), &there) == 0;
  if (is_there && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : NotWritable(flag, path);
  }
  const std::string place = PlaceOf(path).path;
  int file = open(place.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file >= 0) {
    unlink(place.c_str());
  } else if (errno == EEXIST) {
    file = open(place.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  }
  if (file >= 0) {
    close(file);
    return absl::OkStatus();
  }
  return NotWritable(flag, path);
}

absl::Status CheckIsNoInput(absl::string_view flag, const std::string& path,
                            const std::vector<std::string>& inputs) {
  struct stat out;
  // A terminal may be both.
  if (path.empty() || stat(path.c_str(), &out) != 0 || !S_ISREG(out.st_mode)) {
    return absl::OkStatus();
  }
  for (const std::string& input : inputs) {
    struct stat in;
    if (stat(input.c_str(), &in) != 0 || in.st_dev != out.st_dev || in.st_ino != out.st_ino) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", path,
                                                   "\" would be written over \"", input,
                                                   "\", which is read; name another file"));
  }
  return absl::OkStatus();
}

absl::Status WriteOutput(absl::string_view flag, const std::string& path, absl::string_view text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << "\n";
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(flag, ": \"", path, "\" cannot be written: ", strerror(errno)));
}

OutputPlace PlaceOf(const std::string& path) {
  struct stat there;
  const bool is_there = stat(path.c_str(), &there) == 0;
  if (is_there && !S_ISREG(there.st_mode)) return {path, false};
  std::filesystem::path place = path;
  std::error_code error;
  for (int links = 0; links < kLinksMax && std::filesystem::is_symlink(place, error); ++links) {
    const std::filesystem::path target = std::filesystem::read_symlink(place, error);
    if (error) return {path, false};
    place = place.parent_path() / target;  // the target alone where it is absolute
  }
  // What /proc/self/fd names may be gone.
  struct stat found;
  const bool is_found = stat(place.c_str(), &found) == 0;
  if (is_there != is_found) return {path, false};
  if (is_there && (there.st_dev != found.st_dev || there.st_ino != found.st_ino)) {
    return {path, false};
  }
  return {place.string(), true};
}

}  // namespace tessera
