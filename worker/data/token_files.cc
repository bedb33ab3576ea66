#include "worker/data/token_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {

absl::StatusOr<StoredValues> TokenFiles::Open(const std::vector<File>& files, int token_bytes,
                                              int64_t vocabulary, const TokenWindows& windows) {
  TESSERA_CHECK(token_bytes == 2 || token_bytes == 4);
  std::shared_ptr<TokenFiles> source(new TokenFiles(token_bytes, vocabulary, windows));
  int64_t tokens = 0;
  for (const File& file : files) {
    const int descriptor = open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat(file.path, ": cannot be opened"));
    }
    source->files_.push_back({file.path, tokens, file.tokens, descriptor});
    tokens += file.tokens;
  }
  return source;
}

TokenFiles::~TokenFiles() {
  for (const Opened& file : files_) close(file.descriptor);
}

absl::Status TokenFiles::ReadFrom(const Opened& file, int64_t begin, int64_t count,
                                  float* out) const {
  // A buffer of the thread's own, as rows are read by several at once.
  thread_local std::vector<uint8_t> read;
  const int64_t bytes = count * token_bytes_, at = begin * token_bytes_;
  if (read.size() < static_cast<size_t>(bytes)) read.resize(static_cast<size_t>(bytes));
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file.descriptor, read.data() + done,
                              static_cast<size_t>(bytes - done), static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno,
                                 absl::StrCat(file.path, ": byte ", at + done, ": cannot be read"));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(file.path, ": ends at byte ", at + done,
                                              ": it was cut off while the job reads it"));
    }
    done += got;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint32_t token = 0;
    // Little-endian tokens of 16 or 32 bits fill the lower bytes.
    std::memcpy(&token, read.data() + i * token_bytes_, static_cast<size_t>(token_bytes_));
    // All tokens were checked when the job began.
    if (token >= static_cast<uint64_t>(vocabulary_)) {
      return absl::DataLossError(absl::StrCat(file.path, ": byte ", at + i * token_bytes_,
                                              ": token is ", token, ", want 0 to ", vocabulary_ - 1,
                                              ": it was changed while the job reads it"));
    }
    out[i] = static_cast<float>(token);
  }
  return absl::OkStatus();
}

absl::Status TokenFiles::Read(uint32_t row, std::optional<uint64_t> epoch, void* out) const {
  auto* values = static_cast<float*>(out);
  // A window and the token behind it, which is the last label.
  int64_t begin = windows_.BeginOf(row, epoch), left = windows_.context + 1;
  const auto behind =
      std::upper_bound(files_.begin(), files_.end(), begin,
                       [](int64_t token, const Opened& file) { return token < file.first; });
  TESSERA_CHECK(behind != files_.begin());
  // A window may lie across the ends of files.
  for (auto file = std::prev(behind); left > 0; ++file) {
    TESSERA_CHECK(file != files_.end());
    const int64_t count = std::min(left, file->first + file->tokens - begin);
    TESSERA_RETURN_IF_ERROR(ReadFrom(*file, begin - file->first, count, values));
    values += count;
    begin += count;
    left -= count;
  }
  return absl::OkStatus();
}

}  // namespace tessera
