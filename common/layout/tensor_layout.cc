#include "common/layout/tensor_layout.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/layout/layers/layer_kind.h"

namespace tessera {
namespace {

absl::Status Refused(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("model.tensors: ", what));
}

// The parameter that a tensor is; its size is added to `size`, which stays within kModelSizeMax.
absl::StatusOr<ParameterSpec> ParameterOf(const v1::Tensor& tensor, int64_t* size) {
  ParameterSpec spec;
  spec.name = tensor.name();
  spec.layer = -1;
  spec.rows = tensor.dims_size() > 0 ? tensor.dims(0) : 1;
  spec.is_vector = tensor.dims_size() <= 1;
  spec.is_scalar = tensor.dims_size() == 0;
  int64_t entries = 1;
  for (const int64_t extent : tensor.dims()) {
    // Every extent is at least 1, so that a product which is too large stays so.
    const bool is_too_large = __builtin_mul_overflow(entries, extent, &entries);
    if (extent < 1 || is_too_large || entries > kModelSizeMax) {
      return Refused(absl::StrCat("tensor \"", spec.name, "\" is [",
                                  absl::StrJoin(tensor.dims(), ", "),
                                  "], want extents of at least 1 and at most 2^40 entries"));
    }
  }
  spec.columns = entries / spec.rows;
  if (tensor.dims_size() > 2) {
    spec.columns_are.assign(tensor.dims().begin() + 1, tensor.dims().end());
  }
  *size += entries;
  if (*size > kModelSizeMax) return Refused("more than 2^40 entries");
  return spec;
}

uint64_t HashOf(const v1::TensorLayout& layout) {
  XXH3_state_t* const state = XXH3_createState();
  TESSERA_CHECK(state != nullptr);
  XXH3_64bits_reset(state);
  const auto add = [state](const auto& value) { XXH3_64bits_update(state, &value, sizeof value); };
  for (const v1::Tensor& tensor : layout.tensors()) {
    add(static_cast<uint64_t>(tensor.name().size()));
    XXH3_64bits_update(state, tensor.name().data(), tensor.name().size());
    add(static_cast<uint64_t>(tensor.dims_size()));
    for (const int64_t extent : tensor.dims()) add(extent);
  }
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

}  // namespace

bool IsOfTensors(const v1::Model& model) {
  return model.has_tensor_layout() || !model.tensors().empty();
}

absl::StatusOr<std::vector<ParameterSpec>> ParametersOf(const v1::TensorLayout& layout) {
  if (layout.tensors().empty()) return Refused("no tensor is known, want at least one");
  if (layout.tensors_size() > kTensorsMax) {
    return Refused(
        absl::StrCat("has ", layout.tensors_size(), " tensors, want at most ", kTensorsMax));
  }
  std::vector<ParameterSpec> parameters;
  parameters.reserve(static_cast<size_t>(layout.tensors_size()));
  int64_t size = 0;
  for (const v1::Tensor& tensor : layout.tensors()) {
    const std::string& name = tensor.name();
    if (name.empty() || name.size() > kTensorNameBytesMax) {
      return Refused(absl::StrCat("a tensor's name has ", name.size(), " bytes, want 1 to ",
                                  kTensorNameBytesMax));
    }
    if (!parameters.empty() && parameters.back().name >= name) {
      return Refused(absl::StrCat("tensor \"", name, "\" is behind \"", parameters.back().name,
                                  "\", want each name once, in the order of their bytes"));
    }
    if (tensor.dims_size() > kTensorExtentsMax) {
      return Refused(absl::StrCat("tensor \"", name, "\" has ", tensor.dims_size(),
                                  " extents, want at most ", kTensorExtentsMax));
    }
    TESSERA_ASSIGN_OR_RETURN(ParameterSpec spec, ParameterOf(tensor, &size));
    parameters.push_back(std::move(spec));
  }
  return parameters;
}

std::string DescribeLayout(const v1::TensorLayout& layout) {
  int64_t entries = 0;
  for (const v1::Tensor& tensor : layout.tensors()) {
    int64_t of_tensor = 1;
    for (const int64_t extent : tensor.dims()) of_tensor *= extent;
    entries += of_tensor;
  }
  return absl::StrFormat("%d tensors, %d entries, %016x", layout.tensors_size(), entries,
                         HashOf(layout));
}

uint64_t SumOf(const v1::TensorLayout& layout, uint64_t values) {
  const uint64_t both[] = {HashOf(layout), values};
  return std::max<uint64_t>(1, XXH3_64bits(both, sizeof both));
}

}  // namespace tessera
