// The beginning of a data file, by which its format is told.
#ifndef TESSERA_WORKER_DATA_FILE_HEAD_H_
#define TESSERA_WORKER_DATA_FILE_HEAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Views that it gives live as long as it.
class FileHead {
 public:
  // kNotFound, kPermissionDenied, kDataLoss, ...: the file cannot be opened or inflated
  static absl::StatusOr<FileHead> Read(const std::string& path);

  // The file's name in small letters, without its folder and without .gz.
  const std::string& name() const { return name_; }
  // The first bytes of the content, inflated; empty where there is none.
  const std::string& bytes() const { return bytes_; }
  // They are text in UTF-8.
  bool is_text() const;
  // The lines of a text that are whole, and neither blank nor a comment (#).
  std::vector<absl::string_view> lines() const;
  // Reads the file to its end and returns the bytes of its content.
  absl::StatusOr<int64_t> ContentBytes() const;

 private:
  FileHead() = default;

  std::string path_;
  std::string name_;
  std::string bytes_;
  // There is no more in the file.
  bool is_whole_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_FILE_HEAD_H_
