#include "worker/data/idx.h"

#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "worker/data/array.h"
#include "worker/data/byte_source.h"
#include "worker/data/file_format.h"
#include "worker/data/file_head.h"
#include "worker/data/limits.h"

namespace tessera {
namespace {

std::optional<ValueType> TypeOf(uint8_t code) {
  switch (code) {
    case 0x08:
      return ValueType::kU8;
    case 0x09:
      return ValueType::kI8;
    case 0x0b:
      return ValueType::kI16;
    case 0x0c:
      return ValueType::kI32;
    case 0x0d:
      return ValueType::kF32;
    case 0x0e:
      return ValueType::kF64;
    default:
      return std::nullopt;
  }
}

// IDX counts with the most significant byte first.
uint32_t BigEndian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

absl::StatusOr<ArrayHeader> ReadHeader(ByteSource& source) {
  const std::string& path = source.path();
  uint8_t magic[4];
  TESSERA_RETURN_IF_ERROR(source.ReadExactly(magic, sizeof magic, "the IDX header"));
  const std::optional<ValueType> type = TypeOf(magic[2]);
  if (magic[0] != 0 || magic[1] != 0 || !type) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: byte 0: IDX header is %02x %02x %02x %02x, want 00 00, a type (08, "
        "09, 0b to 0e), a rank%s",
        path, magic[0], magic[1], magic[2], magic[3],
        std::memcmp(magic, "\x93NUM", 4) == 0 ? "; it is a NumPy file: set data.format to npy"
                                              : ""));
  }
  // The file says nothing of its byte order: the format has only one.
  ArrayHeader header;
  header.type = *type;
  header.big_endian = true;
  header.type_text = absl::StrFormat("IDX type %02x", magic[2]);
  const int rank = magic[3];
  if (rank < 1 || rank > kIdxDimensionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": byte 3: rank is ", rank, ", want 1 to ", kIdxDimensionsMax));
  }
  // Sizes are read in one piece, as the rank says how many there are.
  uint8_t sizes[4 * kIdxDimensionsMax];
  TESSERA_RETURN_IF_ERROR(source.ReadExactly(sizes, 4 * rank, "the IDX sizes"));
  for (int i = 0; i < rank; ++i) {
    // Sizes are bounded one by one, so that their product fits.
    const int64_t size = BigEndian(sizes + 4 * i);
    const int64_t size_max = i == 0 ? kRowsMax : kFeaturesMax / header.row_values;
    if (size < 1 || size > size_max) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": byte ", 4 + 4 * i, ": size ", i,
                                                     " is ", size, ", want 1 to ", size_max));
    }
    header.sizes.push_back(size);
    // The first size is the number of rows, whatever the rank.
    if (i == 0) {
      header.rows = size;
    } else {
      header.row_values *= size;
    }
  }
  return header;
}

absl::Status CheckIdxLabels(const std::string& path, const ArrayHeader& header) {
  // A label is one integer per row, so files of rank 2 are no labels even if they have one column.
  if (header.sizes.size() == 1 && IsInteger(header.type)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": labels have ", header.type_text,
                                                 " and rank ", header.sizes.size(),
                                                 ", want an integer type and rank 1"));
}

}  // namespace

absl::StatusOr<Table> ReadIdx(const std::vector<std::string>& features_paths,
                              const std::vector<std::string>& labels_paths, const TableSpec& spec) {
  return ReadArrays({"IDX", ReadHeader, CheckIdxLabels}, features_paths, labels_paths, spec);
}

namespace {

// Two zeros, the type of the values, and how many sizes there are.
absl::StatusOr<bool> IsIdx(const FileHead& head) {
  const std::string& bytes = head.bytes();
  return bytes.size() > 4 && bytes[0] == 0 && bytes[1] == 0 &&
         TypeOf(static_cast<uint8_t>(bytes[2])).has_value() && bytes[3] > 0 &&
         bytes[3] <= kIdxDimensionsMax;
}

absl::Status LookAtIdx(const std::vector<std::string>& train, const std::vector<std::string>&,
                       RowsLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(train[0]));
  TESSERA_ASSIGN_OR_RETURN(const ArrayHeader header, ReadHeader(*source));
  look->input = InputOf(header.row_sizes());
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadIdxFiles(const TableFiles& files, const TableSpec& spec,
                                   TrainingConventions*) {
  return ReadIdx(files.features, files.labels, spec);
}

}  // namespace

extern const FileFormat kIdxFormat = {"idx", IsIdx, LookAtIdx, ReadIdxFiles};

}  // namespace tessera
