// Rows of files whose records all have one size: each is read from its place when it is asked for.
#ifndef TESSERA_WORKER_DATA_RECORD_SOURCE_H_
#define TESSERA_WORKER_DATA_RECORD_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/value_source.h"

namespace tessera {

// Constant after construction. Files stay open.
class RecordSource final : public ValueSource {
 public:
  struct File {
    std::string path;
    // The byte at which the first record begins.
    int64_t begin = 0;
    int64_t rows = 0;
  };
  struct Record {
    int64_t bytes = 0;
    // The part of a record that has the values.
    int64_t values_begin = 0;
    int64_t values_bytes = 0;
    // Makes floats of the values of `row` of a file; null: they are bytes, and given as they are.
    std::function<absl::Status(const std::string& path, int64_t row, const uint8_t* values,
                               float* out)>
        convert;
  };

  // Rows are numbered from file to file. Errors of open(2) come with their own codes.
  static absl::StatusOr<StoredValues> Open(const std::vector<File>& files, Record record);
  ~RecordSource() override;

  bool is_bytes() const override { return record_.convert == nullptr; }
  absl::Status Read(uint32_t row, std::optional<uint64_t> epoch, void* out) const override;
  int64_t bytes() const override { return 0; }

 private:
  struct Opened {
    std::string path;
    int64_t begin = 0;
    // The number of the file's first row.
    int64_t first_row = 0;
    int descriptor = -1;
  };

  explicit RecordSource(Record record) : record_(std::move(record)) {}

  const Record record_;
  std::vector<Opened> files_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_RECORD_SOURCE_H_
