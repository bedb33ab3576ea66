#include "common/checkpoint/initial_file.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/checkpoint/manifest.h"
#include "common/codec/half.h"
#include "common/layout/parameters.h"
#include "common/layout/tensor_layout.h"

namespace tessera {
namespace {

// Values that are converted, or read to be checked, at a time.
constexpr int64_t kPieceValues = int64_t{1} << 16;

std::vector<int64_t> ExtentsOf(const ParameterSpec& spec) {
  return CheckpointParameter{spec.name, spec.rows,        spec.columns,  spec.is_vector,
                             1,         spec.columns_are, spec.is_scalar}
      .WholeShape();
}

// Some of the texts, and how many more there are.
std::string FirstOf(const std::vector<std::string>& texts, absl::string_view between) {
  constexpr size_t kToldMax = 8;
  const size_t told = std::min(texts.size(), kToldMax);
  std::string joined = absl::StrJoin(texts.begin(), texts.begin() + told, between);
  if (told < texts.size()) absl::StrAppend(&joined, between, "and ", texts.size() - told, " more");
  return joined;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const InitialFile>> InitialFile::Open(
    const std::string& path, const std::vector<ParameterSpec>& parameters,
    const std::vector<float>& factors) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                           SafetensorsReader::Open(path));
  return OpenWith(std::move(reader), parameters, factors);
}

absl::StatusOr<std::shared_ptr<const InitialFile>> InitialFile::OpenWith(
    std::unique_ptr<SafetensorsReader> reader, const std::vector<ParameterSpec>& parameters,
    const std::vector<float>& factors) {
  TESSERA_CHECK(factors.empty() || factors.size() == parameters.size());
  auto file = std::shared_ptr<InitialFile>(new InitialFile(std::move(reader), parameters, factors));
  TESSERA_RETURN_IF_ERROR(file->FindTensors());
  TESSERA_RETURN_IF_ERROR(file->ReadAll());
  return file;
}

// Finds each parameter's tensor. All that differ are told together.
absl::Status InitialFile::FindTensors() {
  std::vector<std::string> wrong;
  std::set<std::string> names;
  for (const ParameterSpec& spec : parameters_) {
    names.insert(spec.name);
    const TensorSpec* const tensor = reader_->Find(spec.name);
    const std::vector<int64_t> shape = ExtentsOf(spec);
    tensors_.push_back(tensor);
    if (tensor == nullptr) {
      wrong.push_back(absl::StrCat("tensor \"", spec.name, "\" is missing, want [",
                                   absl::StrJoin(shape, ", "), "]"));
    } else if (tensor->shape != shape) {
      wrong.push_back(absl::StrCat("tensor \"", spec.name, "\" is [",
                                   absl::StrJoin(tensor->shape, ", "), "], want [",
                                   absl::StrJoin(shape, ", "), "]"));
    } else if (tensor->dtype != "F32" && tensor->dtype != "F16" && tensor->dtype != "BF16") {
      wrong.push_back(absl::StrCat("tensor \"", spec.name, "\" is of ", tensor->dtype,
                                   ", want F32, F16 or BF16"));
    }
  }
  for (const TensorSpec& tensor : reader_->tensors()) {
    if (names.count(tensor.name) == 0) others_.push_back(tensor.name);
  }
  if (wrong.empty()) return absl::OkStatus();
  const std::string others = DescribeOthers();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", reader_->path(), "\": ", FirstOf(wrong, "; "),
                   others.empty() ? "" : "; tensors that the model has not: ", others));
}

std::string InitialFile::DescribeOthers() const { return FirstOf(others_, ", "); }

absl::Status InitialFile::ReadAll() {
  XXH3_state_t* const sum = XXH3_createState();
  TESSERA_CHECK(sum != nullptr);
  XXH3_64bits_reset(sum);
  absl::Status status;
  std::vector<float> values;
  for (int p = 0; p < parameters() && status.ok(); ++p) {
    const ParameterSpec& spec = parameters_[p];
    const int64_t rows_max =
        std::max<int64_t>(1, kPieceValues / std::max<int64_t>(1, spec.columns));
    for (int64_t row = 0; row < spec.rows && status.ok(); row += rows_max) {
      const int64_t end = std::min(spec.rows, row + rows_max);
      values.resize(static_cast<size_t>((end - row) * spec.columns));
      status = FillRows(p, row, end, values.data());
      if (!status.ok()) break;
      XXH3_64bits_update(sum, values.data(), values.size() * sizeof(float));
      const auto odd = std::find_if(values.begin(), values.end(),
                                    [](float value) { return !std::isfinite(value); });
      if (odd == values.end()) continue;
      status = absl::InvalidArgumentError(
          absl::StrCat("\"", reader_->path(), "\": tensor \"", spec.name, "\": value ",
                       row * spec.columns + (odd - values.begin()), " is ", *odd,
                       ", want numbers that are finite"));
    }
  }
  const uint64_t digest = XXH3_64bits_digest(sum);
  XXH3_freeState(sum);
  sum_ = std::max<uint64_t>(digest, 1);
  return status;
}

absl::Status InitialFile::FillRows(int parameter, int64_t row_begin, int64_t row_end,
                                   float* out) const {
  TESSERA_RETURN_IF_ERROR(ReadRows(parameter, row_begin, row_end, out));
  if (factors_.empty() || factors_[parameter] == 1) return absl::OkStatus();
  const int64_t count = (row_end - row_begin) * parameters_[parameter].columns;
  for (int64_t i = 0; i < count; ++i) out[i] *= factors_[parameter];
  return absl::OkStatus();
}

absl::Status InitialFile::ReadRows(int parameter, int64_t row_begin, int64_t row_end,
                                   float* out) const {
  const TensorSpec& tensor = *tensors_.at(parameter);
  const int64_t columns = parameters_[parameter].columns;
  const int64_t begin = row_begin * columns, end = row_end * columns;
  if (tensor.dtype == "F32") {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
    return reader_->Read(tensor, begin * kBytes, (end - begin) * kBytes, out);
  }
  constexpr auto kBytes = static_cast<int64_t>(sizeof(uint16_t));
  const bool is_f16 = tensor.dtype == "F16";
  std::vector<uint16_t> codes;
  for (int64_t at = begin; at < end; at += kPieceValues) {
    const int64_t count = std::min(kPieceValues, end - at);
    codes.resize(static_cast<size_t>(count));
    TESSERA_RETURN_IF_ERROR(reader_->Read(tensor, at * kBytes, count * kBytes, codes.data()));
    for (const uint16_t code : codes) *out++ = is_f16 ? FromF16(code) : FromBf16(code);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const InitialFile>> OpenInitialFile(
    const v1::Model& model, const std::vector<float>& factors) {
  const bool of_tensors = IsOfTensors(model);
  const std::string& path = of_tensors ? model.tensors() : model.init();
  if (path.empty()) return nullptr;
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(model));
  absl::StatusOr<std::shared_ptr<const InitialFile>> file =
      InitialFile::Open(path, shape.parameters, factors);
  const char* const key = of_tensors ? "model.tensors: " : "model.init: ";
  if (!file.ok()) {
    return absl::Status(
        file.status().code(),
        absl::StrCat(key, absl::StripPrefix(file.status().message(), "checkpoint: ")));
  }
  if (of_tensors && SumOf(model.tensor_layout(), (*file)->sum()) != model.tensor_layout().sum()) {
    return absl::FailedPreconditionError(absl::StrCat(
        key, "\"", path, "\" was changed since the job was read, want it as it was; start again"));
  }
  return file;
}

}  // namespace tessera
