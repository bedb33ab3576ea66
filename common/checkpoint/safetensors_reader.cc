#include "common/checkpoint/safetensors_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/checkpoint/durable_file.h"

namespace tessera {
namespace {

// Bytes that are summed at a time, between two questions whether the sum is still wanted.
constexpr int64_t kReadBytesMax = int64_t{1} << 20;

// Reads exactly so many bytes; a file that is shorter is an error. A call of pread reads 1 GiB at most, as the
// system bounds it at 2 GiB.
absl::Status ReadAt(int fd, const std::string& path, int64_t offset, int64_t bytes, void* out) {
  char* at = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(fd, at, std::min(bytes, int64_t{1} << 30), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, path, "read");
    if (got == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", path, "\": ends at byte ", offset, ", want ", bytes, " more"));
    }
    at += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

// The size of an open file; an error where it is no plain file.
absl::StatusOr<int64_t> SizeOf(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return FileError(errno, path, "read");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\": is no plain file"));
  }
  return static_cast<int64_t>(info.st_size);
}

}  // namespace

SafetensorsReader::~SafetensorsReader() { close(fd_); }

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path) {
  // Without O_NONBLOCK, opening a pipe that nobody writes to would hang here; SizeOf then refuses it.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(errno, path, "read");
  std::unique_ptr<SafetensorsReader> reader(new SafetensorsReader(path, fd));
  TESSERA_ASSIGN_OR_RETURN(reader->file_bytes_, SizeOf(fd, path));
  // A file begins with the length of its header, in 8 bytes with the lowest first.
  unsigned char prefix[kTensorLengthBytes];
  if (reader->file_bytes_ < kTensorLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", path, "\": is no safetensors file: it has ", reader->file_bytes_, " bytes"));
  }
  TESSERA_RETURN_IF_ERROR(ReadAt(fd, path, 0, kTensorLengthBytes, prefix));
  uint64_t length = 0;
  for (int i = kTensorLengthBytes - 1; i >= 0; --i) length = length << 8 | prefix[i];
  // The length comes from the file and is bounded before it is allocated.
  const uint64_t length_max = static_cast<uint64_t>(
      std::min(kTensorHeaderBytesMax, reader->file_bytes_ - kTensorLengthBytes));
  if (length > length_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", path, "\": header is ", length, " bytes, want at most ", length_max));
  }
  std::string text(length, '\0');
  TESSERA_RETURN_IF_ERROR(
      ReadAt(fd, path, kTensorLengthBytes, static_cast<int64_t>(length), text.data()));
  reader->data_begin_ = kTensorLengthBytes + static_cast<int64_t>(length);
  // The header is checked against the size of the file here, which is why Read can do without a bound of its own.
  TESSERA_ASSIGN_OR_RETURN(
      reader->header_, ParseTensorHeader(path, text, reader->file_bytes_ - reader->data_begin_));
  for (size_t i = 0; i < reader->tensors().size(); ++i) {
    reader->by_name_[reader->tensors()[i].name] = i;
  }
  return reader;
}

const TensorSpec* SafetensorsReader::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

absl::StatusOr<const TensorSpec*> SafetensorsReader::Want(absl::string_view name,
                                                          absl::string_view dtype,
                                                          const std::vector<int64_t>& shape) const {
  const TensorSpec* tensor = Find(name);
  if (tensor != nullptr && tensor->dtype == dtype && tensor->shape == shape) return tensor;
  const std::string want = absl::StrCat("want [", absl::StrJoin(shape, ", "), "] of ", dtype);
  // The message names what was wanted in both cases, as a file of another model has neither name nor shape right.
  return absl::InvalidArgumentError(
      tensor == nullptr
          ? absl::StrCat("\"", path_, "\": tensor \"", name, "\": is missing, ", want)
          : absl::StrCat("\"", path_, "\": tensor \"", name, "\": is [",
                         absl::StrJoin(tensor->shape, ", "), "] of ", tensor->dtype, ", ", want));
}

absl::Status SafetensorsReader::Read(const TensorSpec& tensor, int64_t offset, int64_t bytes,
                                     void* out) const {
  TESSERA_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= tensor.bytes());
  return ReadAt(fd_, path_, data_begin_ + tensor.begin + offset, bytes, out);
}

absl::StatusOr<uint64_t> SumOfFile(const std::string& path, int64_t bytes,
                                   const std::function<bool()>& goes_on) {
  // Never waits for a pipe, as in Open.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(errno, path, "read");
  absl::StatusOr<int64_t> size = SizeOf(fd, path);
  absl::Status status = size.status();
  if (status.ok() && *size != bytes) {
    status = absl::InvalidArgumentError(
        absl::StrCat("\"", path, "\": is ", *size, " bytes, want ", bytes));
  }
  XXH3_state_t* const sum = XXH3_createState();
  TESSERA_CHECK(sum != nullptr);
  XXH3_64bits_reset(sum);
  // A file of the wrong size is not read at all: its sum cannot be right.
  std::string piece(static_cast<size_t>(status.ok() ? std::min(bytes, kReadBytesMax) : 0), '\0');
  for (int64_t at = 0; status.ok() && at < bytes;) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(piece.size()), bytes - at);
    // The question comes before each piece, so a large file stops within a megabyte of the answer.
    if (goes_on && !goes_on()) {
      status = absl::CancelledError(absl::StrCat("\"", path, "\": is not wanted any more"));
      break;
    }
    status = ReadAt(fd, path, at, count, piece.data());
    if (status.ok()) XXH3_64bits_update(sum, piece.data(), count);
    at += count;
  }
  const uint64_t digest = XXH3_64bits_digest(sum);
  XXH3_freeState(sum);
  close(fd);
  if (!status.ok()) return status;
  return digest;
}

}  // namespace tessera
