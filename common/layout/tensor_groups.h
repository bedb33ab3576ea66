// Groups of units in a job of tensors: the dimensions of its tensors that subnets cut (model.groups).
#ifndef TESSERA_COMMON_LAYOUT_TENSOR_GROUPS_H_
#define TESSERA_COMMON_LAYOUT_TENSOR_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/parameter_spec.h"
#include "proto/job.pb.h"

namespace tessera {

// One group, and what its units index.
struct TensorGroup {
  std::string name;
  int64_t units = 0;
  // Parameters whose rows are the units, and parameters whose columns are `units` blocks side by side, of as many
  // columns as the tensor's further extents make.
  std::vector<int> rows;
  std::vector<int> columns;
};

// What is wrong with one of the groups.
struct TensorGroupFault {
  // Below model.groups: the group's name and, where one dimension of it is at fault, the dimension's place there.
  std::string group;
  int place = -1;
  // "got ..., want ...".
  std::string message;
};

// All faults of the model's groups; empty: there are none. `parameters` are ParametersOf its layout.
std::vector<TensorGroupFault> FaultsOfGroups(const v1::Model& model,
                                             const std::vector<ParameterSpec>& parameters);

// The groups in the order of their names, by bytes.
//   kInvalidArgument  the first of FaultsOfGroups
absl::StatusOr<std::vector<TensorGroup>> TensorGroupsOf(
    const v1::Model& model, const std::vector<ParameterSpec>& parameters);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_TENSOR_GROUPS_H_
