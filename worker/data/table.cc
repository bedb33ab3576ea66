#include "worker/data/table.h"

#include "absl/strings/str_cat.h"
#include "common/layout/row_shape.h"

namespace tessera {
namespace {

template <typename T>
int64_t Bytes(const NumberArray<T>& v) {
  return static_cast<int64_t>(v.size() * sizeof(T));
}

int64_t Bytes(const SparseValues& v) { return Bytes(v.begin) + Bytes(v.feature) + Bytes(v.value); }

// What the source of stored rows holds is the data set's to tell, which reads them ahead.
int64_t Bytes(const StoredValues&) { return 0; }

int64_t Bytes(const HeldTokens& v) { return v->tokens.bytes(); }

int64_t Bytes(const NextTokens&) { return 0; }

int64_t Bytes(const ClassSets& v) { return Bytes(v.begin) + Bytes(v.classes); }

absl::Status CheckOrder(const std::string& path, absl::Span<const int64_t> row,
                        absl::Span<const int64_t> wanted, absl::string_view whose) {
  if (row.empty() || wanted.empty() || IsSameOrder(row, wanted)) return absl::OkStatus();
  const std::string transpose = TransposeTo(row, wanted);
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": rows are ", ShapeText(row), ", want ", ShapeText(wanted), ", which is ", whose,
      ", or that flattened: as many values, in another order",
      transpose.empty() ? "" : absl::StrCat("; save ", transpose, ", where x is this array")));
}

std::string KindText(bool is_bytes) {
  return is_bytes ? "bytes, which are divided by 255" : "numbers that are taken as they are";
}

}  // namespace

bool Table::is_bytes() const {
  const auto* const stored = std::get_if<StoredValues>(&values);
  return stored != nullptr ? (*stored)->is_bytes() : std::holds_alternative<U8Values>(values);
}

int64_t Table::bytes() const {
  const auto bytes_of = [](const auto& v) { return Bytes(v); };
  return std::visit(bytes_of, values) + std::visit(bytes_of, labels);
}

absl::Status CheckRowShape(const std::string& path, absl::Span<const int64_t> row_sizes,
                           const TableSpec& spec) {
  return CheckOrder(path, row_sizes, spec.input, "model.input");
}

absl::Status CheckSameShape(const std::string& path, const Table& test, const Table& train) {
  return CheckOrder(path, test.row_sizes, train.row_sizes, "the training rows' shape");
}

absl::Status CheckSameKind(const std::string& path, const Table& test,
                           const std::string& train_path, const Table& train) {
  if (test.is_bytes() == train.is_bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": values are ", KindText(test.is_bytes()), ", want ", KindText(train.is_bytes()),
      ", as those of ", train_path,
      ": the model would see test rows on another scale; save both files as one type"));
}

absl::Status CheckTrainedKind(const std::string& path, const Table& table, bool trained_on_bytes) {
  if (table.is_bytes() == trained_on_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": values are ", KindText(table.is_bytes()), ", want ", KindText(trained_on_bytes),
      ", as those that the checkpoint's model was trained on: it would see rows on another scale; "
      "name files of that type"));
}

}  // namespace tessera
