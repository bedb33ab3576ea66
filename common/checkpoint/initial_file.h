// The file that model.init or model.tensors names: safetensors with the values that a job begins with.
#ifndef TESSERA_COMMON_CHECKPOINT_INITIAL_FILE_H_
#define TESSERA_COMMON_CHECKPOINT_INITIAL_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/safetensors_reader.h"
#include "common/layout/parameter_spec.h"
#include "proto/job.pb.h"

namespace tessera {

// Holds the file open and none of its values. Any thread.
class InitialFile {
 public:
  // Reads the file once. `factors`, one for each parameter or none, are what its values are multiplied by. It has a
  // tensor for each of `parameters`, with the name and shape that an export gives it, of F32, F16 or BF16, and may
  // have others.
  //   kInvalidArgument  a tensor is missing, has another shape or dtype, or a value that is not finite;
  //                     SafetensorsReader's
  static absl::StatusOr<std::shared_ptr<const InitialFile>> Open(
      const std::string& path, const std::vector<ParameterSpec>& parameters,
      const std::vector<float>& factors = {});
  // Like Open, for a file that is open already.
  static absl::StatusOr<std::shared_ptr<const InitialFile>> OpenWith(
      std::unique_ptr<SafetensorsReader> reader, const std::vector<ParameterSpec>& parameters,
      const std::vector<float>& factors = {});

  // The number of parameters that it has, which are the first of a job's.
  int parameters() const { return static_cast<int>(tensors_.size()); }
  // Writes rows [row_begin, row_end) of a parameter. The file was changed or cut meanwhile: FileError's codes.
  absl::Status FillRows(int parameter, int64_t row_begin, int64_t row_end, float* out) const;

  // A hash of the parameters' values as f32, multiplied, in the parameters' order; never 0. Files with the same sum
  // begin the same job.
  uint64_t sum() const { return sum_; }
  // Names of the tensors that are no parameters.
  const std::vector<std::string>& others() const { return others_; }
  // The first of these names, and how many more there are, for people; empty: there are none.
  std::string DescribeOthers() const;

 private:
  InitialFile(std::unique_ptr<SafetensorsReader> reader,
              const std::vector<ParameterSpec>& parameters, const std::vector<float>& factors)
      : reader_(std::move(reader)), parameters_(parameters), factors_(factors) {}
  absl::Status FindTensors();
  absl::Status ReadAll();
  absl::Status ReadRows(int parameter, int64_t row_begin, int64_t row_end, float* out) const;

  const std::unique_ptr<SafetensorsReader> reader_;
  const std::vector<ParameterSpec> parameters_;
  const std::vector<float> factors_;        // by parameter; empty: all are 1
  std::vector<const TensorSpec*> tensors_;  // by parameter
  std::vector<std::string> others_;
  uint64_t sum_ = 0;
};

// The file that `model` names, with model.init or model.tensors; nullptr: it names none. `factors` are Open's. Codes as
// Open's, kFailedPrecondition where model.tensors has other values than model.tensor_layout says; the message begins
// with the key.
absl::StatusOr<std::shared_ptr<const InitialFile>> OpenInitialFile(
    const v1::Model& model, const std::vector<float>& factors = {});

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_INITIAL_FILE_H_
