#include "worker/data/record_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {

absl::StatusOr<StoredValues> RecordSource::Open(const std::vector<File>& files, Record record) {
  std::shared_ptr<RecordSource> source(new RecordSource(std::move(record)));
  int64_t rows = 0;
  for (const File& file : files) {
    const int descriptor = open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat(file.path, ": cannot be opened"));
    }
    source->files_.push_back({file.path, file.begin, rows, descriptor});
    rows += file.rows;
  }
  return source;
}

RecordSource::~RecordSource() {
  for (const Opened& file : files_) close(file.descriptor);
}

absl::Status RecordSource::Read(uint32_t row, std::optional<uint64_t>, void* out) const {
  // The last file that begins at this row or in front of it.
  const auto behind =
      std::upper_bound(files_.begin(), files_.end(), int64_t{row},
                       [](int64_t number, const Opened& file) { return number < file.first_row; });
  TESSERA_CHECK(behind != files_.begin());
  const Opened& file = *std::prev(behind);
  const int64_t in_file = row - file.first_row;
  const int64_t begin = file.begin + in_file * record_.bytes + record_.values_begin;
  // A buffer of the thread's own, as rows are read by several at once.
  thread_local std::vector<uint8_t> read;
  auto* values = static_cast<uint8_t*>(out);
  if (!is_bytes()) {
    if (read.size() < static_cast<size_t>(record_.values_bytes)) read.resize(record_.values_bytes);
    values = read.data();
  }
  for (int64_t done = 0; done < record_.values_bytes;) {
    // pread has no position that threads would share.
    const ssize_t got =
        pread(file.descriptor, values + done, record_.values_bytes - done, begin + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat(file.path, ": row ", in_file, ", byte ",
                                                     begin + done, ": cannot be read"));
    }
    // The file had this row when the job began.
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(file.path, ": ends at byte ", begin + done,
                                              ", in row ", in_file,
                                              ": it was cut off while the job reads it"));
    }
    done += got;
  }
  if (is_bytes()) return absl::OkStatus();
  return record_.convert(file.path, in_file, values, static_cast<float*>(out));
}

}  // namespace tessera
