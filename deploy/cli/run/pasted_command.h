// A command that whoever reads it may paste into another terminal.
#ifndef TESSERA_DEPLOY_CLI_RUN_PASTED_COMMAND_H_
#define TESSERA_DEPLOY_CLI_RUN_PASTED_COMMAND_H_

#include <string>

#include "common/rpc/security.h"

namespace tessera {

// This program, as a shell in any folder finds it: its name alone where PATH has it under that, or else the path that
// it was called by (`called_as`, argv[0]), made absolute.
std::string ThisProgram(const std::string& called_as);

// " --authority FILE" and so on, for what `files` has; empty: nothing.
std::string SecurityFlags(const SecurityFiles& files);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_PASTED_COMMAND_H_
