#include "worker/data/array.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/codec/half.h"
#include "worker/data/label_range.h"
#include "worker/data/limits.h"
#include "worker/data/number_array.h"
#include "worker/data/record_source.h"

namespace tessera {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are loaded as they lie");

constexpr int64_t kChunkValues = int64_t{64} << 10;
// Reserved for a compressed file before it has delivered any of what its header claims, where all
// that is too much.
constexpr int64_t kUnseenBytesMax = int64_t{256} << 20;

uint8_t Swapped(uint8_t bits) { return bits; }
uint16_t Swapped(uint16_t bits) { return __builtin_bswap16(bits); }
uint32_t Swapped(uint32_t bits) { return __builtin_bswap32(bits); }
uint64_t Swapped(uint64_t bits) { return __builtin_bswap64(bits); }

// How a type lies in a file, and the number that it is.
template <typename Number, typename Bits>
struct Stored {
  using FileBits = Bits;
  static Number From(Bits bits) {
    static_assert(sizeof(Number) == sizeof(Bits), "only its type changes");
    Number number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
  }
};

struct StoredBool {
  using FileBits = uint8_t;
  // NumPy takes any other byte for true as well.
  static int From(uint8_t bits) { return bits != 0; }
};

struct StoredF16 {
  using FileBits = uint16_t;
  static float From(uint16_t bits) { return FromF16(bits); }
};

// Value i of a chunk.
template <typename Type>
auto ValueAt(const ArrayHeader& header, const uint8_t* chunk, int64_t i) {
  typename Type::FileBits bits;
  std::memcpy(&bits, chunk + i * sizeof bits, sizeof bits);
  return Type::From(header.big_endian ? Swapped(bits) : bits);
}

template <typename Visit>
absl::Status WithType(ValueType type, Visit visit) {
  switch (type) {
    case ValueType::kBool:
      return visit(StoredBool());
    case ValueType::kU8:
      return visit(Stored<uint8_t, uint8_t>());
    case ValueType::kI8:
      return visit(Stored<int8_t, uint8_t>());
    case ValueType::kU16:
      return visit(Stored<uint16_t, uint16_t>());
    case ValueType::kI16:
      return visit(Stored<int16_t, uint16_t>());
    case ValueType::kU32:
      return visit(Stored<uint32_t, uint32_t>());
    case ValueType::kI32:
      return visit(Stored<int32_t, uint32_t>());
    case ValueType::kU64:
      return visit(Stored<uint64_t, uint64_t>());
    case ValueType::kI64:
      return visit(Stored<int64_t, uint64_t>());
    case ValueType::kF16:
      return visit(StoredF16());
    case ValueType::kF32:
      return visit(Stored<float, uint32_t>());
    case ValueType::kF64:
      return visit(Stored<double, uint64_t>());
  }
  TESSERA_CHECK(!"a type of value that there is not");
  return absl::OkStatus();
}

// `count` values of a file, from value `first` on, as floats.
absl::Status ToFloats(const std::string& path, const ArrayHeader& header, int64_t first,
                      const uint8_t* values, int64_t count, float* out) {
  return WithType(header.type, [&](auto type) -> absl::Status {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = ValueAt<decltype(type)>(header, values, i);
      out[i] = static_cast<float>(value);
      if (!std::isfinite(out[i])) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": row ", (first + i) / header.row_values, " value ",
                         (first + i) % header.row_values, " is ", value,
                         ", want a finite number that fits a float"));
      }
    }
    return absl::OkStatus();
  });
}

// Reads the two files of one data set.
class ArrayReader {
 public:
  ArrayReader(const ArrayFormat& format, const TableSpec& spec) : format_(format), spec_(spec) {}

  absl::StatusOr<Table> Read(const std::string& features_path, const std::string& labels_path);

 private:
  absl::StatusOr<ArrayHeader> ReadHeader(ByteSource& source) const;
  template <typename Take>
  absl::Status ForEachChunk(ByteSource& source, const ArrayHeader& header, Take take) const;
  absl::StatusOr<Table> ReadTable(ByteSource& source, const ArrayHeader& header,
                                  const std::string& labels_path) const;
  // Into the table's labels.
  absl::Status ReadLabels(const std::string& path, const std::string& features_path, int64_t rows,
                          Table* table) const;
  absl::Status ReadU8(ByteSource& source, const ArrayHeader& header, U8Values& out) const;
  // Without `out` values are only looked at.
  absl::Status ReadF32(ByteSource& source, const ArrayHeader& header, F32Values* out) const;
  // The rows of the file, each read when it is asked for. All values are looked at now.
  absl::StatusOr<StoredValues> Store(ByteSource& source, const ArrayHeader& header) const;

  const ArrayFormat& format_;
  const TableSpec& spec_;
};

absl::StatusOr<ArrayHeader> ArrayReader::ReadHeader(ByteSource& source) const {
  TESSERA_ASSIGN_OR_RETURN(ArrayHeader header, format_.read_header(source));
  const int64_t want = source.offset() + header.bytes();
  const int64_t there = source.content_bytes_max();
  if (source.compressed() ? want <= there : want == there) return header;
  return absl::InvalidArgumentError(
      absl::StrCat(source.path(), ": content is ", source.compressed() ? "at most " : "", there,
                   " bytes, want ", want, " for ", absl::StrJoin(header.sizes, " x "),
                   " values of ", ValueBytes(header.type), " bytes and the header; ",
                   want > there ? "the file was cut off, or its header is not its own"
                                : "there is more in the file than one array"));
}

// Bytes of the values where they are held.
int64_t ValuesInMemory(const ArrayHeader& header) {
  return header.values() * (header.type == ValueType::kU8 ? 1 : 4);
}

// Calls `take(first_value, chunk, count)` for chunks of the file's values, as they lie there.
template <typename Take>
absl::Status ArrayReader::ForEachChunk(ByteSource& source, const ArrayHeader& header,
                                       Take take) const {
  const int64_t value_bytes = ValueBytes(header.type);
  std::vector<uint8_t> chunk(
      static_cast<size_t>(std::min(header.values(), kChunkValues) * value_bytes));
  for (int64_t first = 0; first < header.values(); first += kChunkValues) {
    const int64_t count = std::min(kChunkValues, header.values() - first);
    TESSERA_RETURN_IF_ERROR(source.ReadExactly(chunk.data(),
                                               static_cast<size_t>(count * value_bytes),
                                               absl::StrCat("the ", format_.name, " values")));
    TESSERA_RETURN_IF_ERROR(take(first, chunk.data(), count));
  }
  return source.ExpectEnd();
}

// Makes room for `count` more of the values that the header claims. Reserved memory costs nothing
// until the file has delivered what goes there. For what a small compressed file claims there may be
// none: then as much as has come says what may be asked for, at the price of copies.
template <typename Value>
void MakeRoom(const ByteSource& source, const ArrayHeader& header, int64_t count,
              NumberArray<Value>& out) {
  const auto there = static_cast<int64_t>(out.size());
  if (there + count <= static_cast<int64_t>(out.capacity())) return;
  const bool is_first = out.capacity() == 0;
  try {
    if (is_first) return out.reserve(static_cast<size_t>(header.values()));
  } catch (const std::bad_alloc&) {
    if (!source.compressed()) throw;
  }
  const int64_t most = std::max(kUnseenBytesMax / static_cast<int64_t>(sizeof(Value)), 4 * there);
  out.reserve(static_cast<size_t>(std::min(header.values(), most)));
}

absl::Status ArrayReader::ReadU8(ByteSource& source, const ArrayHeader& header,
                                 U8Values& out) const {
  return ForEachChunk(source, header, [&](int64_t, const uint8_t* chunk, int64_t count) {
    MakeRoom(source, header, count, out);
    out.append(chunk, static_cast<size_t>(count));
    return absl::OkStatus();
  });
}

absl::Status ArrayReader::ReadF32(ByteSource& source, const ArrayHeader& header,
                                  F32Values* out) const {
  std::vector<float> floats(static_cast<size_t>(std::min(header.values(), kChunkValues)));
  return ForEachChunk(source, header,
                      [&](int64_t first, const uint8_t* chunk, int64_t count) -> absl::Status {
                        TESSERA_RETURN_IF_ERROR(
                            ToFloats(source.path(), header, first, chunk, count, floats.data()));
                        if (out == nullptr) return absl::OkStatus();
                        MakeRoom(source, header, count, *out);
                        out->append(floats.data(), static_cast<size_t>(count));
                        return absl::OkStatus();
                      });
}

absl::StatusOr<StoredValues> ArrayReader::Store(ByteSource& source,
                                                const ArrayHeader& header) const {
  const RecordSource::File file = {source.path(), source.offset(), header.rows};
  RecordSource::Record record;
  record.values_bytes = record.bytes = header.row_values * ValueBytes(header.type);
  if (header.type != ValueType::kU8) {
    TESSERA_RETURN_IF_ERROR(ReadF32(source, header, nullptr));
    record.convert = [header](const std::string& path, int64_t row, const uint8_t* values,
                              float* out) {
      return ToFloats(path, header, row * header.row_values, values, header.row_values, out);
    };
  }
  return RecordSource::Open({file}, std::move(record));
}

absl::Status ArrayReader::ReadLabels(const std::string& path, const std::string& features_path,
                                     int64_t rows, Table* table) const {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const ArrayHeader header, ReadHeader(*source));
  TESSERA_RETURN_IF_ERROR(format_.check_labels(path, header));
  TESSERA_CHECK((spec_.numbers || IsInteger(header.type)) && header.row_values == 1);
  if (header.rows != rows) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", header.rows, " labels, want ",
                                                   rows, ", one for each row of ", features_path));
  }
  if (spec_.numbers) return ReadF32(*source, header, &table->labels.emplace<F32Values>());
  Classes& classes = table->labels.emplace<Classes>();
  LabelRange range;
  std::string wrong;
  const auto read_as = [&](auto type) {
    return ForEachChunk(*source, header, [&](int64_t first, const uint8_t* chunk, int64_t count) {
      MakeRoom(*source, header, count, classes);
      for (int64_t i = 0; i < count; ++i) {
        const auto label = ValueAt<decltype(type)>(header, chunk, i);
        // What is beyond an int64_t is beyond all classes.
        const auto clamped = static_cast<int64_t>(
            std::min<uint64_t>(static_cast<uint64_t>(label), std::numeric_limits<int64_t>::max()));
        const int64_t number = label < 0 ? static_cast<int64_t>(label) : clamped;
        range.Add(number);
        if (number < 0 || number >= spec_.classes) {
          if (!wrong.empty()) continue;
          wrong = absl::StrCat(path, ": row ", first + i, ": label is ", label, ", want 0 to ",
                               spec_.classes - 1, " (the model's classes)");
          if (range.MayExplain(number, spec_.classes)) continue;
          return absl::InvalidArgumentError(wrong);
        }
        classes.push_back(static_cast<int32_t>(number));
      }
      return absl::OkStatus();
    });
  };
  const absl::Status read = WithType(header.type, read_as);
  if (!wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(wrong, read.ok() ? range.Advice(spec_.classes) : ""));
  }
  return read;
}

absl::StatusOr<Table> ArrayReader::ReadTable(ByteSource& source, const ArrayHeader& header,
                                             const std::string& labels_path) const {
  Table table;
  table.rows = header.rows;
  table.features = header.row_values;
  const absl::Span<const int64_t> row = header.row_sizes();
  table.row_sizes.assign(row.begin(), row.end());
  TESSERA_RETURN_IF_ERROR(ReadLabels(labels_path, source.path(), header.rows, &table));
  if (ValuesInMemory(header) > spec_.held_bytes_max) {
    TESSERA_ASSIGN_OR_RETURN(table.values, Store(source, header));
  } else if (header.type == ValueType::kU8) {
    TESSERA_RETURN_IF_ERROR(ReadU8(source, header, table.values.emplace<U8Values>()));
  } else {
    TESSERA_RETURN_IF_ERROR(ReadF32(source, header, &table.values.emplace<F32Values>()));
  }
  return table;
}

absl::StatusOr<Table> ArrayReader::Read(const std::string& features_path,
                                        const std::string& labels_path) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(features_path));
  TESSERA_ASSIGN_OR_RETURN(const ArrayHeader header, ReadHeader(*source));
  if (header.row_values != spec_.features) {
    return absl::InvalidArgumentError(
        absl::StrCat(features_path, ": row size is ", header.row_values, " (",
                     absl::StrJoin(header.sizes, " x "), " with the rows first), want ",
                     spec_.features, ", the product of model.input"));
  }
  TESSERA_RETURN_IF_ERROR(CheckRowShape(features_path, header.row_sizes(), spec_));
  const bool stays = ValuesInMemory(header) > spec_.held_bytes_max;
  if (stays && source->compressed()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(features_path, ": has ", ValuesInMemory(header),
                     " bytes of values, and data.memory has room for ", spec_.held_bytes_max,
                     "; gunzip it: rows of compressed files cannot be read one by one"));
  }
  const int64_t memory_bytes =
      (stays ? 0 : ValuesInMemory(header)) + header.rows * int64_t{sizeof(int32_t)};
  if (memory_bytes > spec_.bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(features_path, ": needs ", memory_bytes,
                                                     " bytes of memory, want at most ",
                                                     spec_.bytes_max));
  }
  try {
    return ReadTable(*source, header, labels_path);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(features_path, ": no memory for ", absl::StrJoin(header.sizes, " x "),
                     " values, ", memory_bytes, " bytes with their labels, as its header claims"));
  }
}

}  // namespace

int64_t ValueBytes(ValueType type) {
  switch (type) {
    case ValueType::kBool:
    case ValueType::kU8:
    case ValueType::kI8:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
    case ValueType::kF16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
  }
  TESSERA_CHECK(!"a type of value that there is not");
  return 0;
}

bool IsInteger(ValueType type) {
  return type != ValueType::kF16 && type != ValueType::kF32 && type != ValueType::kF64;
}

absl::StatusOr<Table> ReadArrays(const ArrayFormat& format, const std::string& features_path,
                                 const std::string& labels_path, const TableSpec& spec) {
  return ArrayReader(format, spec).Read(features_path, labels_path);
}

}  // namespace tessera
