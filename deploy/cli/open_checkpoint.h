// The checkpoint that a person names.
#ifndef TESSERA_DEPLOY_CLI_OPEN_CHECKPOINT_H_
#define TESSERA_DEPLOY_CLI_OPEN_CHECKPOINT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"

namespace tessera {

// Opens a checkpoint by its own folder, or the newest whole one of a checkpoint.directory; stderr tells of broken
// ones that were passed over. All sums of what is returned are right.
//   kNotFound  `path` is neither
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenNamedCheckpoint(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_OPEN_CHECKPOINT_H_
