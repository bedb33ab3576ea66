// Numbers of a job that are each right, and senseless beside its length.
#ifndef TESSERA_DEPLOY_CLI_LENGTH_NOTES_H_
#define TESSERA_DEPLOY_CLI_LENGTH_NOTES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/method/recipe.h"
#include "proto/job.pb.h"

namespace tessera {

// Whether a key that counts steps stands beside train.epochs: only the rows tell how it compares, and the job
// reader has not looked.
bool WantsRows(const v1::Job& job);

// A sentence each, that begins with the key. `recipe` is that of `job`, which has been read without errors; `rows` are
// those of one worker's files. Without them nothing is said that follows from the number of steps in an epoch.
std::vector<std::string> LengthNotesOn(const v1::Job& job, const Recipe& recipe,
                                       std::optional<int64_t> rows);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LENGTH_NOTES_H_
