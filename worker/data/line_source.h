// The lines of a text file, one at a time, numbered for error messages.
#ifndef TESSERA_WORKER_DATA_LINE_SOURCE_H_
#define TESSERA_WORKER_DATA_LINE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/byte_source.h"

namespace tessera {

class LineSource {
 public:
  // Holds at most about twice `line_bytes_max` in memory.
  LineSource(std::unique_ptr<ByteSource> bytes, int64_t line_bytes_max);

  // Sets `line` to the next line without its end (LF or CRLF) and returns true, or returns false
  // after the last. Lines of white space are skipped, as is a byte order mark. The view lives until
  // the next call.
  //   kInvalidArgument  the line is longer than line_bytes_max, or the file is no text in UTF-8
  absl::StatusOr<bool> Next(absl::string_view* line);
  // Returns lines as Next does, those of white space included.
  absl::StatusOr<bool> NextOrBlank(absl::string_view* line);

  // The line that Next returned last, as `path:17`.
  std::string where() const;

 private:
  absl::Status CheckText(absl::string_view line) const;
  absl::StatusOr<bool> NextAny(absl::string_view* line);

  const std::unique_ptr<ByteSource> bytes_;
  const size_t line_bytes_max_;
  // Bytes read and not returned yet are [begin_, end_); the last line that was returned is before
  // them.
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool at_end_ = false;
  int64_t line_ = 0;
};

// Calls `see` with each line of the files, however long, that is not blank. Errors of ByteSource::Open and Next.
absl::Status ForEachLine(const std::vector<std::string>& paths,
                         absl::FunctionRef<void(absl::string_view line)> see);
// The first of these lines of one file. kInvalidArgument besides: there is none.
absl::StatusOr<std::string> FirstLine(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_LINE_SOURCE_H_
