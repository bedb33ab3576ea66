#include "worker/data/cifar.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/data/byte_source.h"
#include "worker/data/limits.h"

namespace tessera {
namespace {

constexpr int64_t kImageBytes = 3 * 32 * 32;
constexpr int64_t kRecordBytes = 1 + kImageBytes;
constexpr int64_t kRowMemoryBytes = kImageBytes + sizeof(int32_t);

absl::Status AppendFile(const std::string& path, const TableSpec& spec, int64_t& rows,
                        U8Values& values, Classes& classes) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  if (!source->compressed()) {
    // Known beforehand, so nothing is copied later.
    const auto file_rows = static_cast<size_t>(source->content_bytes_max() / kRecordBytes);
    if (static_cast<int64_t>(file_rows) < spec.bytes_max / kRowMemoryBytes - rows) {
      values.reserve(values.size() + file_rows * kImageBytes);
    }
  }
  for (int64_t row = 0;; ++row) {
    const int64_t offset = source->offset();
    uint8_t record[kRecordBytes];
    TESSERA_ASSIGN_OR_RETURN(const size_t got, source->Read(record, sizeof record));
    if (got == 0) return absl::OkStatus();
    if (got < sizeof record) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": byte ", offset, ": row ", row,
                                                     " has ", got, " bytes, want ", kRecordBytes));
    }
    if (record[0] >= spec.classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": byte ", offset, ": label of row ", row, " is ", static_cast<int>(record[0]),
          ", want 0 to ", spec.classes - 1, " (the model's classes)"));
    }
    ++rows;
    if (rows > kRowsMax || rows * kRowMemoryBytes > spec.bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": needs more than ", spec.bytes_max, " bytes of memory"));
    }
    classes.push_back(record[0]);
    values.append(record + 1, kImageBytes);
  }
}

}  // namespace

absl::StatusOr<Table> ReadCifar(const std::vector<std::string>& paths, const TableSpec& spec) {
  if (spec.features != kImageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("data.format cifar: row size is ", kImageBytes,
                                                   ", want ", spec.features,
                                                   ", the product of model.input"));
  }
  Table table;
  table.features = kImageBytes;
  U8Values values;
  Classes classes;
  for (const std::string& path : paths) {
    TESSERA_RETURN_IF_ERROR(AppendFile(path, spec, table.rows, values, classes));
  }
  values.shrink_to_fit();
  classes.shrink_to_fit();
  table.values = std::move(values);
  table.labels = std::move(classes);
  return table;
}

}  // namespace tessera
