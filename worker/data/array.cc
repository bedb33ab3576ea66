#include "worker/data/array.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
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

// Values pass through a buffer of at most 512 KiB, which stays in the second-level cache.
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
      // An f64 may be finite and yet too large for a float.
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

// A file of features whose header was read.
struct OpenArray {
  std::unique_ptr<ByteSource> source;
  ArrayHeader header;
};

// Reads the files of one data set.
class ArrayReader {
 public:
  ArrayReader(const ArrayFormat& format, const TableSpec& spec) : format_(format), spec_(spec) {}

  absl::StatusOr<Table> Read(const std::vector<std::string>& features_paths,
                             const std::vector<std::string>& labels_paths);

 private:
  absl::StatusOr<ArrayHeader> ReadHeader(ByteSource& source) const;
  // Opens a file of features, whose rows are as those of the files before it.
  absl::Status Open(const std::string& path);
  template <typename Take>
  absl::Status ForEachChunk(ByteSource& source, const ArrayHeader& header, Take take) const;
  // Refuses what there is no room for; sets stays_.
  absl::Status Plan();
  absl::StatusOr<Table> ReadTable(const std::vector<std::string>& labels_paths);
  // Appends the labels of so many rows to the table's.
  absl::Status ReadLabels(const std::string& path, const std::string& features_path, int64_t rows,
                          Table* table);
  absl::Status ReadU8(ByteSource& source, const ArrayHeader& header, U8Values& out) const;
  // Without `out` values are only looked at.
  absl::Status ReadF32(ByteSource& source, const ArrayHeader& header, int64_t values,
                       F32Values* out) const;
  // The rows of the files, each read when it is asked for. All values are looked at now.
  absl::StatusOr<StoredValues> Store();
  int64_t values() const { return rows_ * spec_.features; }
  // The files' names, for messages about all of them.
  std::string Names() const;

  const ArrayFormat& format_;
  const TableSpec& spec_;
  std::vector<OpenArray> files_;
  // Rows of all files of features together.
  int64_t rows_ = 0;
  // Values stay in their files.
  bool stays_ = false;
  int64_t memory_bytes_ = 0;
  LabelRange range_;
};

std::string ArrayReader::Names() const {
  const std::string& first = files_[0].source->path();
  if (files_.size() == 1) return first;
  return absl::StrCat(first, " and ", files_.size() - 1, " more");
}

absl::StatusOr<ArrayHeader> ArrayReader::ReadHeader(ByteSource& source) const {
  TESSERA_ASSIGN_OR_RETURN(ArrayHeader header, format_.read_header(source));
  const int64_t want = source.offset() + header.bytes();
  const int64_t there = source.content_bytes_max();
  // How much a compressed file holds is known only once it is read: its header may claim no more than gzip can pack.
  if (source.compressed() ? want <= there : want == there) return header;
  return absl::InvalidArgumentError(
      absl::StrCat(source.path(), ": content is ", source.compressed() ? "at most " : "", there,
                   " bytes, want ", want, " for ", absl::StrJoin(header.sizes, " x "),
                   " values of ", ValueBytes(header.type), " bytes and the header; ",
                   want > there ? "the file was cut off, or its header is not its own"
                                : "there is more in the file than one array"));
}

// Bytes of a value where it is held.
int64_t HeldBytes(ValueType type) { return type == ValueType::kU8 ? 1 : 4; }

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

// Makes room for `count` more of the `wanted` values that the headers claim. Reserved memory costs nothing
// until a file has delivered what goes there. For what a small compressed file claims there may be
// none: then as much as has come says what may be asked for, at the price of copies.
template <typename Value>
void MakeRoom(const ByteSource& source, int64_t wanted, int64_t count, NumberArray<Value>& out) {
  const auto there = static_cast<int64_t>(out.size());
  if (there + count <= static_cast<int64_t>(out.capacity())) return;
  const bool is_first = out.capacity() == 0;
  try {
    if (is_first) return out.reserve(static_cast<size_t>(wanted));
  } catch (const std::bad_alloc&) {
    if (!source.compressed()) throw;
  }
  // At least four times what has come: copies cost no more than a third of the values in all.
  const int64_t most = std::max(kUnseenBytesMax / static_cast<int64_t>(sizeof(Value)), 4 * there);
  out.reserve(static_cast<size_t>(std::max(there + count, std::min(wanted, most))));
}

absl::Status ArrayReader::ReadU8(ByteSource& source, const ArrayHeader& header,
                                 U8Values& out) const {
  return ForEachChunk(source, header, [&](int64_t, const uint8_t* chunk, int64_t count) {
    MakeRoom(source, values(), count, out);
    out.append(chunk, static_cast<size_t>(count));
    return absl::OkStatus();
  });
}

absl::Status ArrayReader::ReadF32(ByteSource& source, const ArrayHeader& header, int64_t values,
                                  F32Values* out) const {
  // Converted in a buffer of its own, so that values that are only looked at take no room.
  std::vector<float> floats(static_cast<size_t>(std::min(header.values(), kChunkValues)));
  return ForEachChunk(source, header,
                      [&](int64_t first, const uint8_t* chunk, int64_t count) -> absl::Status {
                        TESSERA_RETURN_IF_ERROR(
                            ToFloats(source.path(), header, first, chunk, count, floats.data()));
                        if (out == nullptr) return absl::OkStatus();
                        MakeRoom(source, values, count, *out);
                        out->append(floats.data(), static_cast<size_t>(count));
                        return absl::OkStatus();
                      });
}

absl::StatusOr<StoredValues> ArrayReader::Store() {
  const ArrayHeader& first = files_[0].header;
  std::vector<RecordSource::File> files;
  for (const OpenArray& file : files_) {
    files.push_back({file.source->path(), file.source->offset(), file.header.rows});
    // Bytes need no look: each of their values is a valid one.
    if (first.type == ValueType::kU8) continue;
    TESSERA_RETURN_IF_ERROR(ReadF32(*file.source, file.header, values(), nullptr));
  }
  RecordSource::Record record;
  record.values_bytes = record.bytes = first.row_values * ValueBytes(first.type);
  if (first.type != ValueType::kU8) {
    record.convert = [header = first](const std::string& path, int64_t row, const uint8_t* values,
                                      float* out) {
      return ToFloats(path, header, row * header.row_values, values, header.row_values, out);
    };
  }
  return RecordSource::Open(files, std::move(record));
}

absl::Status ArrayReader::ReadLabels(const std::string& path, const std::string& features_path,
                                     int64_t rows, Table* table) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const ArrayHeader header, ReadHeader(*source));
  TESSERA_RETURN_IF_ERROR(format_.check_labels(path, header));
  // The format has checked both.
  TESSERA_CHECK((spec_.numbers || IsInteger(header.type)) && header.row_values == 1);
  if (header.rows != rows) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", header.rows, " labels, want ",
                                                   rows, ", one for each row of ", features_path));
  }
  // Labels that are numbers are read as features are, one for each row.
  if (spec_.numbers) {
    return ReadF32(*source, header, rows_, &std::get<F32Values>(table->labels));
  }
  Classes& classes = std::get<Classes>(table->labels);
  std::string wrong;
  const auto read_as = [&](auto type) {
    return ForEachChunk(*source, header, [&](int64_t first, const uint8_t* chunk, int64_t count) {
      MakeRoom(*source, rows_, count, classes);
      for (int64_t i = 0; i < count; ++i) {
        const auto label = ValueAt<decltype(type)>(header, chunk, i);
        // What is beyond an int64_t is beyond all classes.
        const auto clamped = static_cast<int64_t>(
            std::min<uint64_t>(static_cast<uint64_t>(label), std::numeric_limits<int64_t>::max()));
        // A label of an unsigned type is never below 0; one of a signed type that is fits an int64_t.
        const int64_t number = label < 0 ? static_cast<int64_t>(label) : clamped;
        range_.Add(number);
        if (number < 0 || number >= spec_.classes) {
          // After a wrong label the rest is read for the advice alone, which wants the range of all labels.
          if (!wrong.empty()) continue;
          wrong = absl::StrCat(path, ": row ", first + i, ": label is ", label, ", want 0 to ",
                               spec_.classes - 1, " (the model's classes)");
          if (range_.MayExplain(number, spec_.classes)) continue;
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
        absl::StrCat(wrong, read.ok() ? range_.Advice(spec_.classes) : ""));
  }
  return read;
}

absl::StatusOr<Table> ArrayReader::ReadTable(const std::vector<std::string>& labels_paths) {
  const ArrayHeader& first = files_[0].header;
  Table table;
  table.rows = rows_;
  table.features = first.row_values;
  table.row_sizes.assign(first.row_sizes().begin(), first.row_sizes().end());
  if (spec_.numbers) {
    table.labels.emplace<F32Values>();
  } else {
    table.labels.emplace<Classes>();
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(
        ReadLabels(labels_paths[i], files_[i].source->path(), files_[i].header.rows, &table));
  }
  if (stays_) {
    TESSERA_ASSIGN_OR_RETURN(table.values, Store());
    return table;
  }
  if (first.type != ValueType::kU8) table.values.emplace<F32Values>();
  for (const OpenArray& file : files_) {
    if (auto* const bytes = std::get_if<U8Values>(&table.values)) {
      TESSERA_RETURN_IF_ERROR(ReadU8(*file.source, file.header, *bytes));
    } else {
      TESSERA_RETURN_IF_ERROR(
          ReadF32(*file.source, file.header, values(), &std::get<F32Values>(table.values)));
    }
  }
  return table;
}

absl::Status ArrayReader::Open(const std::string& path) {
  OpenArray file;
  TESSERA_ASSIGN_OR_RETURN(file.source, ByteSource::Open(path));
  TESSERA_ASSIGN_OR_RETURN(file.header, ReadHeader(*file.source));
  const ArrayHeader& header = file.header;
  if (header.row_values != spec_.features) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": row size is ", header.row_values, " (", absl::StrJoin(header.sizes, " x "),
        " with the rows first), want ", spec_.features, ", the product of model.input"));
  }
  TESSERA_RETURN_IF_ERROR(CheckRowShape(path, header.row_sizes(), spec_));
  if (!files_.empty()) {
    const OpenArray& first = files_[0];
    const auto kind = [](const ArrayHeader& of) {
      return absl::StrCat(of.type_text, " and shape [", absl::StrJoin(of.row_sizes(), ", "), "]");
    };
    // Rows of all files lie in one table, whose values have one type.
    if (header.type != first.header.type || header.big_endian != first.header.big_endian ||
        header.row_sizes() != first.header.row_sizes()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": rows have ", kind(header), ", want ", kind(first.header),
                       ", as those of ", first.source->path(), ": all files of a set are alike"));
    }
  }
  rows_ += header.rows;
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status ArrayReader::Plan() {
  const int64_t held = values() * HeldBytes(files_[0].header.type);
  stays_ = held > spec_.held_bytes_max;
  for (const OpenArray& file : files_) {
    if (!stays_ || !file.source->compressed()) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat(Names(), ": has ", held, " bytes of values, and data.memory has room for ",
                     spec_.held_bytes_max, "; gunzip ",
                     files_.size() == 1 ? std::string("it") : file.source->path(),
                     ": rows of compressed files cannot be read one by one"));
  }
  // Labels are held in any case.
  memory_bytes_ = (stays_ ? 0 : held) + rows_ * int64_t{sizeof(int32_t)};
  if (memory_bytes_ <= spec_.bytes_max && rows_ <= kRowsMax) return absl::OkStatus();
  if (rows_ > kRowsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Names(), ": has ", rows_, " rows, want at most ", kRowsMax));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      Names(), ": needs ", memory_bytes_, " bytes of memory, want at most ", spec_.bytes_max));
}

absl::StatusOr<Table> ArrayReader::Read(const std::vector<std::string>& features_paths,
                                        const std::vector<std::string>& labels_paths) {
  TESSERA_CHECK(!features_paths.empty() && features_paths.size() == labels_paths.size());
  for (const std::string& path : features_paths) TESSERA_RETURN_IF_ERROR(Open(path));
  TESSERA_RETURN_IF_ERROR(Plan());
  // What the header claims may be more than the machine has, also where it is below the limit.
  try {
    return ReadTable(labels_paths);
  } catch (const std::bad_alloc&) {
    const std::string size = files_.size() == 1 ? absl::StrJoin(files_[0].header.sizes, " x ")
                                                : absl::StrCat(rows_, " x ", spec_.features);
    return absl::ResourceExhaustedError(
        absl::StrCat(Names(), ": no memory for ", size, " values, ", memory_bytes_,
                     " bytes with their labels, as its header claims"));
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

absl::StatusOr<Table> ReadArrays(const ArrayFormat& format,
                                 const std::vector<std::string>& features_paths,
                                 const std::vector<std::string>& labels_paths,
                                 const TableSpec& spec) {
  return ArrayReader(format, spec).Read(features_paths, labels_paths);
}

std::vector<int64_t> InputOf(absl::Span<const int64_t> row_sizes) {
  // An image is one from so many pixels a side: convolutions see nothing in less.
  constexpr int64_t kImageSide = 8;
  const auto& sizes = row_sizes;
  if (sizes.size() == 2 && std::min(sizes[0], sizes[1]) >= kImageSide) {
    return {1, sizes[0], sizes[1]};
  }
  // The channels may be last, which the reader refuses with the words that help.
  if (sizes.size() == 3) {
    return sizes[2] <= 4 ? std::vector<int64_t>{sizes[2], sizes[0], sizes[1]}
                         : std::vector<int64_t>(sizes.begin(), sizes.end());
  }
  return {std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>())};
}

}  // namespace tessera
