#include "common/base/output_file.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status CheckWritable(absl::string_view flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file >= 0) {
    unlink(path.c_str());
  } else if (errno == EEXIST) {
    file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  }
  if (file >= 0) {
    close(file);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", path,
                                                 "\" cannot be written: ", strerror(errno),
                                                 "; name a file in a folder that exists"));
}

}  // namespace tessera
