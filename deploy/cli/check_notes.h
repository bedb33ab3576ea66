// What `tessera check` adds of a job that is right, and yet may do less than its author expects.
#ifndef TESSERA_DEPLOY_CLI_CHECK_NOTES_H_
#define TESSERA_DEPLOY_CLI_CHECK_NOTES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/method/recipe.h"
#include "proto/job.pb.h"

namespace tessera {

// The notes, a sentence each. `recipe` is that of `job`, which has been read without errors; `rows`, of one
// worker's files, if they are known.
std::vector<std::string> NotesOn(const v1::Job& job, const Recipe& recipe,
                                 std::optional<int64_t> rows = std::nullopt);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CHECK_NOTES_H_
