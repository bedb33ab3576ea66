#include "worker/data/idx.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "worker/data/byte_source.h"
#include "worker/data/limits.h"

namespace tessera {
namespace {

constexpr int64_t kChunkValues = int64_t{64} << 10;
// Reserved for a compressed file before it has delivered any of what its header claims, where all that is too much.
constexpr int64_t kUnseenBytesMax = int64_t{256} << 20;

enum class IdxType : uint8_t { kU8 = 8, kI8 = 9, kI16 = 11, kI32 = 12, kF32 = 13, kF64 = 14 };

struct IdxHeader {
  IdxType type = IdxType::kU8;
  int64_t value_bytes = 0;
  std::vector<int64_t> sizes;
  int64_t rows = 0;
  int64_t row_values = 1;

  int64_t values() const { return rows * row_values; }
};

// 0 where there is no such type.
int64_t ValueBytes(IdxType type) {
  switch (type) {
    case IdxType::kU8:
    case IdxType::kI8:
      return 1;
    case IdxType::kI16:
      return 2;
    case IdxType::kI32:
    case IdxType::kF32:
      return 4;
    case IdxType::kF64:
      return 8;
  }
  return 0;
}

uint32_t BigEndian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

absl::Status CheckContentBytes(const ByteSource& source, const IdxHeader& header) {
  const int64_t want = source.offset() + header.values() * header.value_bytes;
  const int64_t there = source.content_bytes_max();
  if (source.compressed() ? want <= there : want == there) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(source.path(), ": content is ", source.compressed() ? "at most " : "", there,
                   " bytes, want ", want, " for ", absl::StrJoin(header.sizes, " x "),
                   " values of ", header.value_bytes, " bytes and the header"));
}

absl::StatusOr<IdxHeader> ReadHeader(ByteSource& source) {
  const std::string& path = source.path();
  uint8_t magic[4];
  TESSERA_RETURN_IF_ERROR(source.ReadExactly(magic, sizeof magic, "the IDX header"));
  IdxHeader header;
  header.type = static_cast<IdxType>(magic[2]);
  header.value_bytes = ValueBytes(header.type);
  if (magic[0] != 0 || magic[1] != 0 || header.value_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: byte 0: IDX header is %02x %02x %02x %02x, want 00 00, a type (08, "
                        "09, 0b to 0e), a rank",
                        path, magic[0], magic[1], magic[2], magic[3]));
  }
  const int rank = magic[3];
  if (rank < 1 || rank > kIdxDimensionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": byte 3: rank is ", rank, ", want 1 to ", kIdxDimensionsMax));
  }
  uint8_t sizes[4 * kIdxDimensionsMax];
  TESSERA_RETURN_IF_ERROR(source.ReadExactly(sizes, 4 * rank, "the IDX sizes"));
  for (int i = 0; i < rank; ++i) {
    const int64_t size = BigEndian(sizes + 4 * i);
    const int64_t size_max = i == 0 ? kRowsMax : kFeaturesMax / header.row_values;
    if (size < 1 || size > size_max) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": byte ", 4 + 4 * i, ": size ", i,
                                                     " is ", size, ", want 1 to ", size_max));
    }
    header.sizes.push_back(size);
    if (i == 0) {
      header.rows = size;
    } else {
      header.row_values *= size;
    }
  }
  TESSERA_RETURN_IF_ERROR(CheckContentBytes(source, header));
  return header;
}

// Calls `take(first_value, chunk, count)` for chunks of the file's values, in their own byte order.
template <typename Take>
absl::Status ForEachChunk(ByteSource& source, const IdxHeader& header, Take take) {
  std::vector<uint8_t> chunk(
      static_cast<size_t>(std::min(header.values(), kChunkValues) * header.value_bytes));
  for (int64_t first = 0; first < header.values(); first += kChunkValues) {
    const int64_t count = std::min(kChunkValues, header.values() - first);
    TESSERA_RETURN_IF_ERROR(source.ReadExactly(
        chunk.data(), static_cast<size_t>(count * header.value_bytes), "the IDX values"));
    TESSERA_RETURN_IF_ERROR(take(first, chunk.data(), count));
  }
  return source.ExpectEnd();
}

// Value i of a chunk.
double Decode(IdxType type, const uint8_t* chunk, int64_t i) {
  switch (type) {
    case IdxType::kU8:
      return chunk[i];
    case IdxType::kI8:
      return static_cast<int8_t>(chunk[i]);
    case IdxType::kI16:
      return static_cast<int16_t>(chunk[2 * i] << 8 | chunk[2 * i + 1]);
    case IdxType::kI32:
      return static_cast<int32_t>(BigEndian(chunk + 4 * i));
    case IdxType::kF32: {
      const uint32_t bits = BigEndian(chunk + 4 * i);
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case IdxType::kF64: {
      const uint64_t bits = uint64_t{BigEndian(chunk + 8 * i)} << 32 | BigEndian(chunk + 8 * i + 4);
      double value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
  }
  return 0;
}

// Makes room for `count` more of the values that the header claims. Reserved memory costs nothing until the file has
// delivered what goes there. For what a small compressed file claims there may be none: then as much as has come
// says what may be asked for, at the price of copies.
template <typename Value>
void MakeRoom(const ByteSource& source, const IdxHeader& header, int64_t count, std::vector<Value>& out) {
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

absl::Status ReadU8(ByteSource& source, const IdxHeader& header, U8Values& out) {
  return ForEachChunk(source, header, [&](int64_t, const uint8_t* chunk, int64_t count) {
    MakeRoom(source, header, count, out);
    out.insert(out.end(), chunk, chunk + count);
    return absl::OkStatus();
  });
}

absl::Status ReadF32(ByteSource& source, const IdxHeader& header, F32Values& out) {
  return ForEachChunk(source, header, [&](int64_t first, const uint8_t* chunk, int64_t count) {
    MakeRoom(source, header, count, out);
    for (int64_t i = 0; i < count; ++i) {
      const double value = Decode(header.type, chunk, i);
      const float rounded = static_cast<float>(value);
      if (!std::isfinite(rounded)) {
        return absl::InvalidArgumentError(
            absl::StrCat(source.path(), ": row ", (first + i) / header.row_values, " value ",
                         (first + i) % header.row_values, " is ", value,
                         ", want a finite number that fits a float"));
      }
      out.push_back(rounded);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Classes> ReadLabels(const std::string& path, const std::string& features_path,
                                   int64_t rows, const TableSpec& spec) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const IdxHeader header, ReadHeader(*source));
  if (header.sizes.size() != 1 || header.type == IdxType::kF32 || header.type == IdxType::kF64) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: labels have IDX type %02x and rank %d, want an integer type and rank 1", path,
        static_cast<int>(header.type), header.sizes.size()));
  }
  if (header.rows != rows) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", header.rows, " labels, want ",
                                                   rows, ", one for each row of ", features_path));
  }
  Classes classes;
  TESSERA_RETURN_IF_ERROR(
      ForEachChunk(*source, header, [&](int64_t first, const uint8_t* chunk, int64_t count) {
        MakeRoom(*source, header, count, classes);
        for (int64_t i = 0; i < count; ++i) {
          const auto label = static_cast<int64_t>(Decode(header.type, chunk, i));
          if (label < 0 || label >= spec.classes) {
            return absl::InvalidArgumentError(absl::StrCat(path, ": row ", first + i, ": label is ",
                                                           label, ", want 0 to ", spec.classes - 1,
                                                           " (the model's classes)"));
          }
          classes.push_back(static_cast<int32_t>(label));
        }
        return absl::OkStatus();
      }));
  return classes;
}

absl::StatusOr<Table> ReadTable(ByteSource& source, const IdxHeader& header, const std::string& labels_path,
                                const TableSpec& spec) {
  Table table;
  table.rows = header.rows;
  table.features = header.row_values;
  TESSERA_ASSIGN_OR_RETURN(table.labels, ReadLabels(labels_path, source.path(), header.rows, spec));
  if (header.type == IdxType::kU8) {
    TESSERA_RETURN_IF_ERROR(ReadU8(source, header, table.values.emplace<U8Values>()));
  } else {
    TESSERA_RETURN_IF_ERROR(ReadF32(source, header, table.values.emplace<F32Values>()));
  }
  return table;
}

}  // namespace

absl::StatusOr<Table> ReadIdx(const std::string& features_path, const std::string& labels_path,
                              const TableSpec& spec) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(features_path));
  TESSERA_ASSIGN_OR_RETURN(const IdxHeader header, ReadHeader(*source));
  if (header.row_values != spec.features) {
    return absl::InvalidArgumentError(
        absl::StrCat(features_path, ": row size is ", header.row_values, " (",
                     absl::StrJoin(header.sizes, " x "), " with the rows first), want ",
                     spec.features, ", the product of model.input"));
  }
  const int64_t memory_bytes = header.values() * (header.type == IdxType::kU8 ? 1 : 4) +
                               header.rows * int64_t{sizeof(int32_t)};
  if (memory_bytes > spec.bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(features_path, ": needs ", memory_bytes,
                                                     " bytes of memory, want at most ",
                                                     spec.bytes_max));
  }
  try {
    return ReadTable(*source, header, labels_path, spec);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        features_path, ": no memory for ", absl::StrJoin(header.sizes, " x "), " values, ", memory_bytes,
        " bytes with their labels, as its header claims"));
  }
}

}  // namespace tessera
