// The content of one regular file, read once from front to back.
//
// Gzip is inflated on the way, whatever the file's name: one or more members, one after the other, each
// with its checksum verified; zeros behind one are skipped. A file whose name ends in .gz and that is no
// gzip is an error, as is content that no data format begins with (file_kind.h), inflated or not.
#ifndef TESSERA_WORKER_DATA_BYTE_SOURCE_H_
#define TESSERA_WORKER_DATA_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct z_stream_s;

namespace tessera {

class ByteSource {
 public:
  // Which files may be data: pages and JSON, too, where any text may be.
  enum class Kinds { kData, kAnyText };

  // Never waits: what is not a regular file is refused with kInvalidArgument, as is what is known to be
  // no data. Errors of open(2) come with their own codes.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const std::string& path,
                                                          Kinds kinds = Kinds::kData);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fills `out` and returns `bytes`, or less where the content ends.
  //   kDataLoss         the gzip data is corrupt or cut off
  //   kInvalidArgument  what was inflated is known to be no data
  absl::StatusOr<size_t> Read(void* out, size_t bytes);
  // Fills `out`; kInvalidArgument where the content ends before. `what` names the bytes in the
  // message.
  absl::Status ReadExactly(void* out, size_t bytes, absl::string_view what);
  // kInvalidArgument where there is more content, kDataLoss where the gzip data does not end well.
  absl::Status ExpectEnd();

  // Bytes of content that were read.
  int64_t offset() const { return offset_; }
  // The content is no longer than this, and exactly so long where !compressed().
  int64_t content_bytes_max() const { return content_bytes_max_; }
  bool compressed() const { return inflater_ != nullptr; }
  const std::string& path() const { return path_; }

 private:
  ByteSource(std::string path, int file, Kinds kinds);

  absl::StatusOr<size_t> ReadFile(void* out, size_t bytes);
  absl::StatusOr<size_t> ReadGzip(void* out, size_t bytes);
  absl::StatusOr<size_t> Inflate(void* out, size_t bytes);
  absl::StatusOr<std::string> FileHead() const;
  absl::Status CheckKind(absl::string_view head) const;
  absl::Status BeginInflating(int64_t file_bytes);
  absl::Status RefillInput();
  absl::Status Corrupt(absl::string_view why) const;

  const std::string path_;
  const int file_;
  const Kinds kinds_;
  int64_t content_bytes_max_ = 0;
  int64_t offset_ = 0;
  // Set for gzip only.
  std::unique_ptr<z_stream_s> inflater_;
  std::vector<unsigned char> input_;
  int64_t input_offset_ = 0;
  bool inside_member_ = false;
  int64_t members_ = 0;
  // Inflated before it was asked for, to see what it is; the first head_taken_ bytes of it were returned.
  std::string head_;
  size_t head_taken_ = 0;
};

// All that the files have, one behind the other; any text may be in them. Errors of Open and Read.
absl::StatusOr<std::string> ContentOf(const std::vector<std::string>& paths);
// How many bytes that is of one file, which is read to its end.
absl::StatusOr<int64_t> ContentBytes(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_BYTE_SOURCE_H_
