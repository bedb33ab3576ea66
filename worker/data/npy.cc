#include "worker/data/npy.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "worker/data/array.h"
#include "worker/data/byte_source.h"
#include "worker/data/file_format.h"
#include "worker/data/file_head.h"
#include "worker/data/npy_header.h"

namespace tessera {
namespace {

bool IsColumn(const ArrayHeader& header) {
  const size_t rank = header.sizes.size();
  // A matrix of one column lies in memory as a vector does.
  return rank == 1 || (rank == 2 && header.sizes[1] == 1);
}

absl::Status CheckNumbers(const std::string& path, const ArrayHeader& header) {
  if (IsColumn(header)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": labels have shape (", absl::StrJoin(header.sizes, ", "), "), want (",
                   header.rows, ",) or (", header.rows, ", 1): one number for each row"));
}

absl::Status CheckNpyLabels(const std::string& path, const ArrayHeader& header) {
  const size_t rank = header.sizes.size();
  const bool is_column = IsColumn(header);
  if (is_column && IsInteger(header.type)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": labels have ", header.type_text, " and shape (", absl::StrJoin(header.sizes, ", "),
      rank == 1 ? ",)" : ")", ", want an integer type and shape (", header.rows, ",) or (",
      header.rows, ", 1); save ",
      is_column ? "labels.astype(np.int64)"
                : "one class for each row, labels.argmax(axis=1) if they are one-hot"));
}

}  // namespace

absl::StatusOr<Table> ReadNpy(const std::vector<std::string>& features_paths,
                              const std::vector<std::string>& labels_paths, const TableSpec& spec) {
  return ReadArrays({"NumPy", ReadNpyHeader, spec.numbers ? CheckNumbers : CheckNpyLabels},
                    features_paths, labels_paths, spec);
}

namespace {

absl::StatusOr<bool> IsNpy(const FileHead& head) {
  return absl::StartsWith(head.bytes(), "\x93NUMPY");
}

absl::Status LookAtNpy(const std::vector<std::string>& train, const std::vector<std::string>&,
                       RowsLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(train[0]));
  TESSERA_ASSIGN_OR_RETURN(const ArrayHeader header, ReadNpyHeader(*source));
  look->input = InputOf(header.row_sizes());
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadNpyFiles(const TableFiles& files, const TableSpec& spec,
                                   TrainingConventions*) {
  return ReadNpy(files.features, files.labels, spec);
}

}  // namespace

extern const FileFormat kNpyFormat = {"npy", IsNpy, LookAtNpy, ReadNpyFiles};

}  // namespace tessera
