// Which tensor of a model is which parameter of a job's layers, by names and shapes.
#ifndef TESSERA_DEPLOY_CLI_IMPORT_NAME_MATCH_H_
#define TESSERA_DEPLOY_CLI_IMPORT_NAME_MATCH_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/safetensors.h"
#include "common/layout/parameter_spec.h"

namespace tessera {

// The shape of a parameter's tensor, as an export has it.
std::vector<int64_t> ExtentsOf(const ParameterSpec& spec);

// A module of the model, and the layer that it is: "fc1" and "layers.0". A tensor that is called `from`, or whose name
// begins with it and a dot, is taken as if `to` stood in the place of `from`.
struct Renaming {
  std::string from;
  std::string to;
};

// "fc1=layers.0". kInvalidArgument: not two names with one equals sign between them.
absl::StatusOr<Renaming> ParseRenaming(absl::string_view text);

struct NameMatch {
  // By parameter, the index of its tensor.
  std::vector<size_t> tensors;
  // Names of the tensors that are running statistics of batch norms, which a job calibrates by itself.
  std::vector<std::string> passed_over;
};

// Finds each parameter's tensor. Of the renamings that fit a tensor the longest `from` holds. Without renamings a
// module that has all the layers, as in "net.0.weight" for "layers.0.weight", is found by itself, where there is only
// one. `norms` are the layers that are batch norms.
//   kInvalidArgument  a tensor is missing, left over, given twice or of another shape or type, or a renaming fits none.
//                     The message has a line for each, and for modules that fit one layer alone the renamings to give.
absl::StatusOr<NameMatch> MatchNames(const std::vector<ParameterSpec>& parameters,
                                     const std::vector<std::string>& norms,
                                     const std::vector<TensorSpec>& tensors,
                                     const std::vector<Renaming>& renamings);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_IMPORT_NAME_MATCH_H_
