// Where the other programs are.
#ifndef TESSERA_DEPLOY_CLI_RUN_FIND_PROGRAM_H_
#define TESSERA_DEPLOY_CLI_RUN_FIND_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"

namespace tessera {

// The programs lie where the build (in its folder `build_directory`) or the package put them, relative to this one.
//   kNotFound  it does not
absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::string& build_directory);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_FIND_PROGRAM_H_
