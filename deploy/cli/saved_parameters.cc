#include "deploy/cli/saved_parameters.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/checkpoint/manifest.h"
#include "common/layout/parameters.h"
#include "deploy/cli/counted.h"

namespace tessera {

absl::Status LoadSavedParameters(absl::string_view command, const Checkpoint& checkpoint,
                                 Network* network) {
  const Manifest& manifest = checkpoint.manifest();
  const std::vector<ParameterSpec>& specs = network->shape().parameters;
  if (manifest.model_parameters != static_cast<int64_t>(specs.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat(command, ": the checkpoint has ", Counted(manifest.model_parameters, "tensor"),
                     ", and the job's model ", specs.size(),
                     ": it is of another model; name the job that wrote it"));
  }
  for (size_t p = 0; p < specs.size(); ++p) {
    const CheckpointParameter& saved = manifest.parameters[p];
    const ParameterSpec& spec = specs[p];
    const CheckpointParameter wanted{spec.name,      spec.rows, spec.columns,
                                     spec.is_vector, 1,         spec.columns_are};
    if (saved.name != spec.name || saved.Extents() != wanted.Extents()) {
      return absl::FailedPreconditionError(
          absl::StrCat(command, ": the checkpoint has tensor \"", saved.name, "\" [",
                       absl::StrJoin(saved.Extents(), ", "), "], and the job's model \"", spec.name,
                       "\" [", absl::StrJoin(wanted.Extents(), ", "),
                       "]: it is of another model; name the job that wrote it"));
    }
    const absl::Span<float> values = network->arrays().parameter(static_cast<int>(p));
    TESSERA_RETURN_IF_ERROR(
        checkpoint.ReadRows(static_cast<int64_t>(p), /*state=*/-1, 0, spec.rows, values.data()));
    if (saved.export_factor == 1) continue;
    const float factor = static_cast<float>(saved.export_factor);
    for (float& value : values) value *= factor;
  }
  network->arrays().SendParameters();
  return absl::OkStatus();
}

}  // namespace tessera
