#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/checkpoint/strict_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";
// Data begins on a multiple of this, so that a reader may map the file and use the arrays in place.
constexpr int64_t kDataAlignment = 64;
constexpr size_t kDimensionsMax = 16;

struct Dtype {
  const char* name;
  int64_t bytes;
};
constexpr Dtype kDtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
    {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8},
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The bytes of a tensor of an untrusted dtype and shape; -1: there is no such tensor.
int64_t CheckedBytes(const TensorSpec& tensor) {
  int64_t bytes = DtypeBytes(tensor.dtype);
  if (bytes == 0 || tensor.shape.size() > kDimensionsMax) return -1;
  for (const int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  }
  return bytes;
}

// Reads one tensor's entry of the header and checks it: a known dtype, a shape whose bytes fit the offsets, and
// offsets within the data.
absl::StatusOr<TensorSpec> ParseTensor(const std::string& where, const std::string& name,
                                       const Json& json, int64_t data_bytes) {
  JsonFields fields(where, json);
  TensorSpec tensor;
  tensor.name = name;
  fields.Get("dtype", &tensor.dtype);
  const Json* shape = fields.GetArray("shape");
  const Json* offsets = fields.GetArray("data_offsets");
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  if (DtypeBytes(tensor.dtype) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ".dtype: is \"", tensor.dtype, "\", which is no dtype of safetensors"));
  }
  const auto is_extent = [](const Json& value) {
    return value.is_number_unsigned() &&
           value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  };
  for (const Json& extent : *shape) {
    if (!is_extent(extent) || tensor.shape.size() == kDimensionsMax) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".shape: want at most ", kDimensionsMax,
                                                     " integers that are not negative"));
    }
    tensor.shape.push_back(extent.get<int64_t>());
  }
  if (offsets->size() != 2 || !is_extent((*offsets)[0]) || !is_extent((*offsets)[1])) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ".data_offsets: want two integers that are not negative"));
  }
  tensor.begin = (*offsets)[0].get<int64_t>();
  const int64_t end = (*offsets)[1].get<int64_t>();
  if (tensor.begin > end || end > data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(where, ".data_offsets: are [", tensor.begin,
                                                   ", ", end, "], want them in order and within ",
                                                   data_bytes, " bytes of data"));
  }
  const int64_t bytes = CheckedBytes(tensor);
  if (bytes != end - tensor.begin) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": data_offsets hold ", end - tensor.begin, " bytes, but ", ShapeText(tensor.shape),
        " of ", tensor.dtype, bytes < 0 ? " overflows" : absl::StrCat(" is ", bytes)));
  }
  return tensor;
}

// Reads the file's metadata, which the format allows to be texts alone.
absl::Status ParseMetadata(const std::string& where, const Json& json, TensorMetadata* metadata) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": is ", json.type_name(), ", want an object"));
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ".", key, ": is ", value.type_name(), ", want a string"));
    }
    (*metadata)[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

}  // namespace

int64_t TensorSpec::size() const {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

int64_t TensorSpec::bytes() const { return size() * DtypeBytes(dtype); }

int64_t DtypeBytes(absl::string_view dtype) {
  for (const Dtype& known : kDtypes) {
    if (dtype == known.name) return known.bytes;
  }
  return 0;
}

absl::StatusOr<std::string> FormatTensorHeader(const std::vector<TensorSpec>& tensors,
                                               const TensorMetadata& metadata) {
  // The header's keys keep our order, which is the order of the data.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::set<std::string> names = {kMetadataKey};
  int64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", tensor.name, "\": is given twice, or has the metadata's name"));
    }
    const int64_t bytes = CheckedBytes(tensor);
    int64_t end = 0;
    if (bytes < 0 || __builtin_add_overflow(begin, bytes, &end)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", tensor.name, "\": ", ShapeText(tensor.shape), " of ",
                       tensor.dtype, " is no size that a file can have"));
    }
    // ordered_json looks a key up from its begin each time it is set: emplaced at the end instead.
    nlohmann::ordered_json entry = nlohmann::ordered_json::object();
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {begin, end};
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(tensor.name, std::move(entry));
    begin = end;
  }
  std::string text = header.dump(-1, ' ', /*ensure_ascii=*/false,
                                 nlohmann::ordered_json::error_handler_t::replace);
  // The header's length with its padding, 8 bytes in little-endian order, comes in front of it.
  const size_t padding =
      (kDataAlignment - (kTensorLengthBytes + text.size()) % kDataAlignment) % kDataAlignment;
  text.append(padding, ' ');
  if (static_cast<int64_t>(text.size()) > kTensorHeaderBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("tensors: their header is ", text.size(),
                                                   " bytes, want at most ", kTensorHeaderBytesMax));
  }
  std::string length(kTensorLengthBytes, '\0');
  for (int i = 0; i < kTensorLengthBytes; ++i) {
    length[i] = static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  }
  return length + text;
}

absl::StatusOr<TensorHeader> ParseTensorHeader(absl::string_view path, absl::string_view text,
                                               int64_t data_bytes) {
  const std::string file = absl::StrCat("\"", path, "\"");
  if (text.empty() || text[0] != '{') {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": is no safetensors file: its header does not begin with {"));
  }
  TESSERA_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(absl::StrCat(file, ": header"), text));
  TensorHeader header;
  for (const auto& [name, value] : json.items()) {
    const std::string where = absl::StrCat(file, ": tensor \"", name, "\"");
    if (name == kMetadataKey) {
      TESSERA_RETURN_IF_ERROR(
          ParseMetadata(absl::StrCat(file, ": ", kMetadataKey), value, &header.metadata));
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(TensorSpec tensor, ParseTensor(where, name, value, data_bytes));
    header.tensors.push_back(std::move(tensor));
  }
  // Empty ones first where several begin at the same place.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorSpec& a, const TensorSpec& b) {
              return a.begin != b.begin ? a.begin < b.begin : a.bytes() < b.bytes();
            });
  // The format forbids holes and overlaps; the sorted tensors must follow each other without either.
  int64_t end = 0;
  for (const TensorSpec& tensor : header.tensors) {
    if (tensor.begin != end) {
      return absl::InvalidArgumentError(absl::StrCat(
          file, ": tensor \"", tensor.name, "\": data_offsets begin at ", tensor.begin, ", want ",
          end, tensor.begin > end ? "; nothing fills the hole" : "; it overlaps the one before"));
    }
    end += tensor.bytes();
  }
  if (end != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": data are ", data_bytes, " bytes, but the tensors fill ", end));
  }
  return header;
}

}  // namespace tessera
