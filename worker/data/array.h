// A data set in files of one array each, features in some and the labels of each of those in as many others: what IDX
// and NumPy files have in common.
//
//   file = header value{product of the sizes}
// The first size counts rows; the product of the others is the row size. What a header looks like,
// and what labels may be, is the format's own. The rows of several files are one after the other, and all are of one
// type and one shape.
#ifndef TESSERA_WORKER_DATA_ARRAY_H_
#define TESSERA_WORKER_DATA_ARRAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/byte_source.h"
#include "worker/data/table.h"

namespace tessera {

enum class ValueType { kBool, kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF16, kF32, kF64 };

int64_t ValueBytes(ValueType type);
// Whether values are whole numbers; bool counts, whose values are 0 and 1.
bool IsInteger(ValueType type);

struct ArrayHeader {
  ValueType type = ValueType::kU8;
  bool big_endian = false;
  // The type in the file's own words: "IDX type 0d", "descr \"<f4\"".
  std::string type_text;
  // The first in [1, kRowsMax], the product of the others in [1, kFeaturesMax].
  std::vector<int64_t> sizes;
  int64_t rows = 0;
  int64_t row_values = 1;

  // [3, 8, 8] of rows of images; empty where a row is one value.
  absl::Span<const int64_t> row_sizes() const { return absl::MakeConstSpan(sizes).subspan(1); }
  int64_t values() const { return rows * row_values; }
  int64_t bytes() const { return values() * ValueBytes(type); }
};

struct ArrayFormat {
  // The format's name in messages: "IDX".
  const char* name;
  // Reads all that stands before the first value.
  absl::StatusOr<ArrayHeader> (*read_header)(ByteSource& source);
  // Says what is wrong with the header of a file of labels. A row size of 1 is the least that it asks for, and an
  // integer type where labels are classes.
  absl::Status (*check_labels)(const std::string& path, const ArrayHeader& header);
};

// u8 values stay u8; all others become the f32 that is nearest, which is finite or an error. Nothing
// is allocated before the sizes in the header agree with the file's own size. Those of a .gz agree
// with the most that so many bytes can inflate to, which is far more than they do: there memory
// grows with what arrives. Values that take more than spec.held_bytes_max stay in files that are not compressed. There
// are as many files of labels as of features, at least one.
//   kInvalidArgument    a file is malformed, not what `spec` wants, or its rows are not as those of the first
//   kResourceExhausted  the table would exceed spec.bytes_max, or the memory that there is, or a compressed file has
//                       more values than spec.held_bytes_max
absl::StatusOr<Table> ReadArrays(const ArrayFormat& format,
                                 const std::vector<std::string>& features_paths,
                                 const std::vector<std::string>& labels_paths,
                                 const TableSpec& spec);

// model.input of rows of these sizes: [1, height, width] where they seem to be images.
std::vector<int64_t> InputOf(absl::Span<const int64_t> row_sizes);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_ARRAY_H_
