#include "common/base/output_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// The limit that the system itself has for following links.
constexpr int kLinksMax = 40;

// The error of a place that cannot be written, by errno.
absl::Status NotWritable(absl::string_view flag, const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", path,
                                                 "\" cannot be written: ", strerror(errno),
                                                 "; name a file in a folder that exists"));
}

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Whether this process's stdout or stderr goes to the file: it cannot be replaced, as what follows there would go
// to a file that has no name any more.
bool IsOwnOutput(const struct stat& there) {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat open;
    if (fstat(descriptor, &open) == 0 && IsSame(open, there)) return true;
  }
  return false;
}

// Gives a file the rights of the one whose place it takes, and its owner if this process may.
void TakeAfter(const struct stat& there, int file) {
  // Changing the owner clears bits of the mode.
  if (fchown(file, there.st_uid, there.st_gid) != 0 && fchown(file, -1, there.st_gid) != 0) {
    // The file stays this process's own.
  }
  fchmod(file, there.st_mode & 0777);
}

// Writes the text. Returns 0, or errno.
int WriteText(const std::string& path, absl::string_view text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << "\n";
  if (!file.flush()) return errno;
  // Network file systems may tell of a failed write only now.
  file.close();
  return file ? 0 : errno;
}

}  // namespace

absl::Status CheckWritable(absl::string_view flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  // A pipe is not opened to be tried, as whoever reads it takes its first writer's end for all there is.
  struct stat there;
  const bool is_there = stat(path.c_str(), &there) == 0;
  if (is_there && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : NotWritable(flag, path);
  }
  const std::string place = PlaceOf(path).path;
  int file = open(place.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
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
  // Only a regular file counts, as a terminal may be both input and output.
  if (path.empty() || stat(path.c_str(), &out) != 0 || !S_ISREG(out.st_mode)) {
    return absl::OkStatus();
  }
  for (const std::string& input : inputs) {
    struct stat in;
    if (stat(input.c_str(), &in) != 0 || !IsSame(in, out)) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", path,
                                                   "\" would be written over \"", input,
                                                   "\", which is read; name another file"));
  }
  return absl::OkStatus();
}

absl::Status WriteOutput(absl::string_view flag, const std::string& path, absl::string_view text) {
  OutputFile file(path);
  int error = file.error();
  if (error == 0) error = WriteText(file.path(), text);
  if (error == 0 && file.Commit() != 0) {
    // A file that is mounted there, as into a container, can be written but not replaced.
    error = WriteText(path, text);
  }
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(flag, ": \"", path, "\" cannot be written: ", strerror(error)));
}

OutputPlace PlaceOf(const std::string& path) {
  struct stat there;
  const bool is_there = stat(path.c_str(), &there) == 0;
  if (is_there && (!S_ISREG(there.st_mode) || IsOwnOutput(there))) return {path, false};
  std::filesystem::path place = path;
  std::error_code error;
  for (int links = 0; links < kLinksMax && std::filesystem::is_symlink(place, error); ++links) {
    const std::filesystem::path target = std::filesystem::read_symlink(place, error);
    if (error) return {path, false};
    place = place.parent_path() / target;  // the target alone where it is absolute
  }
  // The file that a link in /proc/self/fd names may be gone.
  struct stat found;
  const bool is_found = stat(place.c_str(), &found) == 0;
  if (is_there != is_found) return {path, false};
  if (is_there && !IsSame(there, found)) return {path, false};
  return {place.string(), true};
}

OutputFile::OutputFile(const std::string& path) {
  const OutputPlace place = PlaceOf(path);
  place_ = place.path;
  if (!place.may_be_replaced) return;
  struct stat there;
  const bool is_there = stat(place_.c_str(), &there) == 0;
  // A file that may not be written is not replaced either: writing to it says why.
  if (is_there && access(place_.c_str(), W_OK) != 0) return;
  // A random name: two processes that write to one place must not share their unfinished files.
  std::random_device device;
  const uint64_t drawn = (uint64_t{device()} << 32) | device();
  const std::string part = absl::StrCat(place_, ".", absl::Hex(drawn, absl::kZeroPad16), ".part");
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) {
    // On a full disk the file that is there would be lost. Otherwise its folder may be another's, or its name too
    // long.
    if (errno == ENOSPC || errno == EDQUOT) error_ = errno;
    return;
  }
  // Rights are given before any text is written, so that nobody reads a private file's successor meanwhile.
  if (is_there) TakeAfter(there, file);
  close(file);
  part_ = part;
}

OutputFile::~OutputFile() {
  if (!part_.empty()) unlink(part_.c_str());
}

int OutputFile::Commit() {
  if (part_.empty()) return 0;
  const int error = rename(part_.c_str(), place_.c_str()) == 0 ? 0 : errno;
  if (error != 0) unlink(part_.c_str());
  part_.clear();
  return error;
}

}  // namespace tessera
