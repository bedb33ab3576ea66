#include "common/checkpoint/durable_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

// Linux writes less than 2 GiB per call, whatever it is asked for.
constexpr int64_t kWriteBytesMax = int64_t{64} << 20;

}  // namespace

absl::Status FileError(int error, absl::string_view path, absl::string_view what) {
  const std::string text =
      ToUtf8(absl::StrCat("checkpoint: \"", path, "\" cannot be ", what, ": ", strerror(error)));
  // The codes say what may help: room for the caller to wait for, rights for a person to give, or another try.
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(text);
    case EROFS:
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Create(std::string path) {
  return Open(std::move(path), O_TRUNC);
}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::CreateNew(std::string path) {
  return Open(std::move(path), O_EXCL | O_NOFOLLOW);
}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::CreateUnique(const std::string& path) {
  std::random_device device;
  const uint64_t drawn = (uint64_t{device()} << 32) | device();
  return Open(absl::StrCat(path, ".", absl::Hex(drawn, absl::kZeroPad16)), O_EXCL | O_NOFOLLOW);
}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Open(std::string path, int flags) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (fd < 0) return FileError(errno, path, "made");
  std::unique_ptr<DurableFile> file(new DurableFile(std::move(path), fd));
  if (const int error = Failpoint("file.create")) return FileError(error, file->path_, "made");
  return file;
}

DurableFile::~DurableFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DurableFile::Write(const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    // write may take less than it is given, as when a signal comes or the disk is nearly full.
    const ssize_t written = write(fd_, at, std::min(bytes, kWriteBytesMax));
    if (written < 0) {
      if (errno == EINTR) continue;
      return FileError(errno, path_, "written");
    }
    at += written;
    bytes -= written;
  }
  if (const int error = Failpoint("file.write")) return FileError(error, path_, "written");
  return absl::OkStatus();
}

absl::Status DurableFile::Finish() {
  TESSERA_CHECK(fd_ >= 0);
  // Nothing is to be synced of a pipe or a device.
  if (fsync(fd_) != 0) {
    const int error = errno;
    struct stat info;
    const bool is_plain = fstat(fd_, &info) != 0 || S_ISREG(info.st_mode);
    if (is_plain || error != EINVAL) return FileError(error, path_, "written");
  }
  if (const int error = Failpoint("file.sync")) return FileError(error, path_, "written");
  // Network file systems may tell of a failed write only now.
  if (close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    return FileError(errno, path_, "written");
  }
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0) {
    struct stat info;
    const int error = errno;
    const bool is_there = error == EEXIST && stat(path.c_str(), &info) == 0;
    if (!is_there || !S_ISDIR(info.st_mode)) {
      return FileError(is_there ? ENOTDIR : error, path, "made");
    }
  }
  if (const int error = Failpoint("folder.make")) return FileError(error, path, "made");
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& path) {
  // The entry of a new file is durable only when its folder is synced, too.
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(errno, path, "read");
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // Some file systems cannot sync folders, and say EINVAL.
  if (error != 0 && error != EINVAL) return FileError(error, path, "written");
  if (const int failed = Failpoint("folder.sync")) return FileError(failed, path, "written");
  return absl::OkStatus();
}

absl::Status RenameFolder(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    return FileError(errno, from, absl::StrCat("renamed to \"", to, "\""));
  }
  if (const int error = Failpoint("folder.rename")) return FileError(error, from, "renamed");
  return absl::OkStatus();
}

absl::Status ReplaceFile(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    return FileError(errno, from, absl::StrCat("renamed to \"", to, "\""));
  }
  if (const int error = Failpoint("file.rename")) return FileError(error, from, "renamed");
  return absl::OkStatus();
}

absl::Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return FileError(errno, path, "removed");
  return absl::OkStatus();
}

// Only files are expected inside; a folder in it is an error of unlink, and nothing below it is touched.
absl::Status RemoveFolder(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) return errno == ENOENT ? absl::OkStatus() : FileError(errno, path, "read");
  // Names are collected first: unlinking while readdir goes on may make it skip entries.
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::string(name));
  }
  closedir(folder);
  for (const std::string& name : names) {
    const std::string file = absl::StrCat(path, "/", name);
    if (unlink(file.c_str()) != 0 && errno != ENOENT) return FileError(errno, file, "removed");
    if (const int error = Failpoint("folder.remove")) return FileError(error, file, "removed");
  }
  if (rmdir(path.c_str()) != 0 && errno != ENOENT) return FileError(errno, path, "removed");
  if (const int error = Failpoint("folder.remove")) return FileError(error, path, "removed");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t bytes_max) {
  // O_NONBLOCK keeps a pipe without a writer from holding us for ever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(errno, path, "read");
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(
        ToUtf8(absl::StrCat("checkpoint: \"", path, "\" is no plain file")));
  }
  std::string text;
  char piece[16384];
  while (true) {
    const ssize_t got = read(fd, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int error = got < 0 ? errno : 0;
      close(fd);
      if (error != 0) return FileError(error, path, "read");
      return text;
    }
    text.append(piece, got);
    // The limit is checked as the file is read, as its size may change while it is open.
    if (static_cast<int64_t>(text.size()) > bytes_max) {
      close(fd);
      return absl::InvalidArgumentError(
          ToUtf8(absl::StrCat("checkpoint: \"", path, "\" is longer than ", bytes_max, " bytes")));
    }
  }
}

}  // namespace tessera
