#include "tests/fuzz/data_file.h"

#include <zlib.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/fuzz/scratch_file.h"

namespace tessera {
namespace {

// Tokens of inputs are below it: bytes, and those of vocabularies that a byte says.
constexpr int32_t kFuzzTokensEnd = 256;

std::string Gzip(absl::string_view content) {
  z_stream stream{};
  TESSERA_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(&out[0]);
  stream.avail_out = static_cast<uInt>(out.size());
  TESSERA_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

int64_t CheckValues(const U8Values& values, const Table& table) {
  TESSERA_CHECK(static_cast<int64_t>(values.size()) == table.rows * table.features);
  return static_cast<int64_t>(values.size());
}

int64_t CheckValues(const F32Values& values, const Table& table) {
  TESSERA_CHECK(static_cast<int64_t>(values.size()) == table.rows * table.features);
  for (const float value : values) TESSERA_CHECK(std::isfinite(value));
  return static_cast<int64_t>(values.size() * sizeof(float));
}

int64_t CheckValues(const SparseValues& values, const Table& table) {
  TESSERA_CHECK(static_cast<int64_t>(values.begin.size()) == table.rows + 1);
  TESSERA_CHECK(values.begin.front() == 0);
  TESSERA_CHECK(values.begin.back() == static_cast<int64_t>(values.value.size()));
  TESSERA_CHECK(values.feature.size() == values.value.size());
  for (int64_t row = 0; row < table.rows; ++row) {
    TESSERA_CHECK(values.begin[row] <= values.begin[row + 1]);
    for (int64_t i = values.begin[row]; i < values.begin[row + 1]; ++i) {
      TESSERA_CHECK(values.feature[i] < table.features);
      TESSERA_CHECK(i == values.begin[row] || values.feature[i - 1] < values.feature[i]);
      TESSERA_CHECK(std::isfinite(values.value[i]));
    }
  }
  return static_cast<int64_t>(values.value.size() * sizeof(float));
}

int64_t CheckValues(const HeldTokens& held, const Table& table) {
  const TokenRows& rows = *held;
  TESSERA_CHECK(table.rows * table.features < rows.tokens.size());
  std::vector<int32_t> tokens(rows.tokens.size());
  rows.tokens.Read(0, rows.tokens.size(), tokens.data());
  for (const int32_t token : tokens) TESSERA_CHECK(token >= 0 && token < kFuzzTokensEnd);
  return rows.tokens.bytes();
}

int64_t CheckValues(const StoredValues& values, const Table& table) {
  std::vector<float> row(table.features + (table.is_tokens() ? 1 : 0));
  for (int64_t i = 0; i < table.rows; ++i) {
    TESSERA_CHECK(values->Read(static_cast<uint32_t>(i), std::nullopt, row.data()).ok());
    if (values->is_bytes()) continue;
    for (const float value : row) TESSERA_CHECK(std::isfinite(value));
  }
  return 0;
}

void CheckLabels(const Classes& classes, const Table& table, int64_t end) {
  TESSERA_CHECK(static_cast<int64_t>(classes.size()) == table.rows);
  for (const int32_t c : classes) TESSERA_CHECK(c >= 0 && c < end);
}

void CheckLabels(const NextTokens&, const Table& table, int64_t end) {
  TESSERA_CHECK(end <= kFuzzTokensEnd && table.rows >= 1);
}

void CheckLabels(const ClassSets& sets, const Table& table, int64_t end) {
  TESSERA_CHECK(static_cast<int64_t>(sets.begin.size()) == table.rows + 1);
  TESSERA_CHECK(sets.begin.back() == static_cast<int64_t>(sets.classes.size()));
  for (int64_t row = 0; row < table.rows; ++row) {
    TESSERA_CHECK(sets.begin[row] <= sets.begin[row + 1]);
  }
  for (const int32_t c : sets.classes) TESSERA_CHECK(c >= 0 && c < end);
}

void CheckLabels(const F32Values& numbers, const Table& table, int64_t) {
  TESSERA_CHECK(static_cast<int64_t>(numbers.size()) == table.rows);
  for (const float number : numbers) TESSERA_CHECK(std::isfinite(number));
}

}  // namespace

DataFile TakeDataFile(FuzzInput* input) {
  DataFile file;
  file.spec.features = std::max<int64_t>(1, input->Byte());
  file.spec.classes = std::max<int64_t>(1, input->Byte());
  const uint8_t flags = input->Byte();
  file.spec.class_sets = (flags & 1) != 0;
  file.spec.local_files = (flags & 2) != 0;
  file.gzip = (flags & 12) != 0;
  file.compress = (flags & 8) != 0;
  if ((flags & 16) != 0) file.spec.held_bytes_max = 0;
  file.spec.bytes_max = kFuzzTableBytes;
  return file;
}

std::string WriteDataFile(const DataFile& file, absl::string_view content, int number) {
  return WriteScratchFile(absl::StrCat(number, file.gzip ? ".gz" : ""),
                          file.compress ? Gzip(content) : std::string(content));
}

void CheckTable(const absl::StatusOr<Table>& table, const TableSpec& spec) {
  if (!table.ok()) {
    TESSERA_CHECK(!table.status().message().empty());
    return;
  }
  TESSERA_CHECK(table->rows >= 0 && table->features == spec.features);
  std::visit([&](const auto& values) { CheckValues(values, *table); }, table->values);
  std::visit([&](const auto& labels) { CheckLabels(labels, *table, spec.classes); }, table->labels);
  TESSERA_CHECK(table->bytes() <= spec.bytes_max);
}

}  // namespace tessera
