// What `tessera check` adds of a job that is right, and whose programs would yet refuse to start.
#ifndef TESSERA_DEPLOY_CLI_START_NOTES_H_
#define TESSERA_DEPLOY_CLI_START_NOTES_H_

#include <string>
#include <vector>

#include "common/method/recipe.h"
#include "proto/job.pb.h"

namespace tessera {

// A sentence each, with what to do. `recipe` is that of `job`, which has been read without errors. Files under security
// are those of this machine.
std::vector<std::string> StartNotesOn(const v1::Job& job, const Recipe& recipe);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_START_NOTES_H_
