// A safetensors file, read piece by piece.
#ifndef TESSERA_COMMON_CHECKPOINT_SAFETENSORS_READER_H_
#define TESSERA_COMMON_CHECKPOINT_SAFETENSORS_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/safetensors.h"

namespace tessera {

// Reads a file, of which it believes nothing: whatever its bytes are there is a status, and no allocation larger
// than the header may be. The values are read with pread, so that a file that gets shorter meanwhile is an error
// and no signal. Any thread, once open.
class SafetensorsReader {
 public:
  //   kInvalidArgument  ParseTensorHeader's, or shorter than its length says; and FileError's codes
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);
  ~SafetensorsReader();

  const std::string& path() const { return path_; }
  const std::vector<TensorSpec>& tensors() const { return header_.tensors; }
  const TensorMetadata& metadata() const { return header_.metadata; }
  int64_t file_bytes() const { return file_bytes_; }
  // The tensor of this name; nullptr: there is none.
  const TensorSpec* Find(absl::string_view name) const;
  // One that is there, of this dtype and shape; kInvalidArgument says what differs.
  absl::StatusOr<const TensorSpec*> Want(absl::string_view name, absl::string_view dtype,
                                         const std::vector<int64_t>& shape) const;

  // Bytes [offset, offset + bytes) of the tensor's, which has them.
  absl::Status Read(const TensorSpec& tensor, int64_t offset, int64_t bytes, void* out) const;

 private:
  SafetensorsReader(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  int64_t file_bytes_ = 0;
  int64_t data_begin_ = 0;
  TensorHeader header_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

// The XXH3 sum of a file of `bytes` bytes. `goes_on` is asked at every MiB, where it is set.
//   kInvalidArgument  it has another size
//   kCancelled        `goes_on` said no
absl::StatusOr<uint64_t> SumOfFile(const std::string& path, int64_t bytes,
                                   const std::function<bool()>& goes_on = nullptr);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_SAFETENSORS_READER_H_
