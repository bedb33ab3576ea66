// The checkpoint that a person names.
#ifndef TESSERA_DEPLOY_CLI_OPEN_CHECKPOINT_H_
#define TESSERA_DEPLOY_CLI_OPEN_CHECKPOINT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"

namespace tessera {

// Of a checkpoint's own folder or of a checkpoint.directory, whose newest whole one is taken; stderr
// tells of broken ones that were passed over. All its sums are right.
//   kNotFound  `path` is neither
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenNamedCheckpoint(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_OPEN_CHECKPOINT_H_
