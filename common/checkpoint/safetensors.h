// The safetensors layout, as far as it is text: what a file's header says.
//
//   file    = length header data
//   length  = 8 bytes, little-endian: bytes of the header
//   header  = JSON, begins with "{", may end with spaces:
//             { "__metadata__": {"key": "value", ...},
//               "name": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [begin, end]}, ... }
//   data    = the tensors, row-major and little-endian; offsets count from its begin, and the tensors
//             fill it without a hole and without an overlap
//
// https://huggingface.co/docs/safetensors. We pad the header so that data begins at a multiple of 64.
#ifndef TESSERA_COMMON_CHECKPOINT_SAFETENSORS_H_
#define TESSERA_COMMON_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// A header beyond this is refused before it is read. Other readers of the format have the same limit.
constexpr int64_t kTensorHeaderBytesMax = 100000000;
constexpr int64_t kTensorLengthBytes = 8;

// A tensor of the file. Without `begin`, one that is about to be written.
struct TensorSpec {
  std::string name;
  // The type's name in the format: "F32", "U64".
  std::string dtype;
  std::vector<int64_t> shape;
  // The place in the data where the tensor's bytes begin.
  int64_t begin = 0;

  // The number of entries, and of bytes, of a tensor that has been checked.
  int64_t size() const;
  int64_t bytes() const;
};

using TensorMetadata = std::map<std::string, std::string>;

struct TensorHeader {
  // The tensors, in the order of their data.
  std::vector<TensorSpec> tensors;
  TensorMetadata metadata;
};

// The bytes of one entry; 0: no dtype of the layout has this name.
int64_t DtypeBytes(absl::string_view dtype);

// The first bytes of a file that has these tensors, one after the other: length and header.
//   kInvalidArgument  a name is given twice or is "__metadata__", a dtype is unknown, a size is
//                     negative or too large
absl::StatusOr<std::string> FormatTensorHeader(const std::vector<TensorSpec>& tensors,
                                               const TensorMetadata& metadata);

// Reads the header's text, of a file with `data_bytes` after it. Nothing of it is believed unchecked.
// `path` is for messages.
//   kInvalidArgument  no JSON, a name twice, an unknown dtype or key, sizes that contradict the
//                     offsets or overflow, offsets with a hole, an overlap or beyond the data
absl::StatusOr<TensorHeader> ParseTensorHeader(absl::string_view path, absl::string_view text,
                                               int64_t data_bytes);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_SAFETENSORS_H_
