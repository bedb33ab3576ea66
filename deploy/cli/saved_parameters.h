// A checkpoint's parameters, as an export has them.
#ifndef TESSERA_DEPLOY_CLI_SAVED_PARAMETERS_H_
#define TESSERA_DEPLOY_CLI_SAVED_PARAMETERS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint.h"
#include "worker/model/network.h"

namespace tessera {

// Loads them into `network`. Messages begin with the name of the command. Codes of Checkpoint::ReadRows, and
//   kFailedPrecondition  they are of another model
absl::Status LoadSavedParameters(absl::string_view command, const Checkpoint& checkpoint,
                                 Network* network);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SAVED_PARAMETERS_H_
