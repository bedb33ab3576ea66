// The tensors of a model that was trained somewhere, wherever they lie.
#ifndef TESSERA_DEPLOY_CLI_IMPORT_MODEL_SOURCE_H_
#define TESSERA_DEPLOY_CLI_IMPORT_MODEL_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/safetensors.h"
#include "common/layout/parameter_spec.h"

namespace tessera {

// A safetensors file, or the parameters of a checkpoint as an export has them. One thread.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual const std::vector<TensorSpec>& tensors() const = 0;
  // The files that it is read from.
  virtual std::vector<std::string> files() const = 0;
  // Before ReadRows, and once: the parameters that will be read, under the names and shapes of tensors().
  //   kInvalidArgument  values are not finite; and SafetensorsReader's
  virtual absl::Status Choose(const std::vector<ParameterSpec>& parameters) = 0;
  // Writes rows [row_begin, row_end) of a chosen parameter. Codes of FileError: what is read has changed.
  virtual absl::Status ReadRows(int parameter, int64_t row_begin, int64_t row_end,
                                float* out) const = 0;
};

// `path` is a file, a checkpoint's folder, or one that has checkpoints, of which the newest whole one is taken.
//   kNotFound         there is neither
//   kInvalidArgument  it is broken; and FileError's codes
absl::StatusOr<std::unique_ptr<ModelSource>> OpenModelSource(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_IMPORT_MODEL_SOURCE_H_
