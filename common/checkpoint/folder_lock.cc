#include "common/checkpoint/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"
#include "common/base/utf8.h"
#include "common/checkpoint/durable_file.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& folder,
                                                             const std::string& name) {
  const std::string path = absl::StrCat(folder, "/", name);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return FileError(errno, path, "made");
  int error = 0;
  do {
    error = Failpoint("folder.lock");
    // flock belongs to the open file, so that the kernel releases it however the process ends.
    if (error == 0) error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) return absl::WrapUnique(new FolderLock(fd));
  close(fd);
  switch (error) {
    case EWOULDBLOCK:
      return absl::FailedPreconditionError(
          ToUtf8(absl::StrCat("\"", folder, "\" is in use by another process")));
    // Some network file systems have no locks. The caller decides whether to go on without one.
    case ENOLCK:
    case ENOSYS:
    case EOPNOTSUPP:
      return absl::UnimplementedError(FileError(error, path, "locked").message());
    default:
      return FileError(error, path, "locked");
  }
}

FolderLock::~FolderLock() { close(fd_); }

}  // namespace tessera
