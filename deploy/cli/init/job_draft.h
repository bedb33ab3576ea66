// A commented job file for a data set: a network that fits its rows, and keys that a first run can go with.
#ifndef TESSERA_DEPLOY_CLI_INIT_JOB_DRAFT_H_
#define TESSERA_DEPLOY_CLI_INIT_JOB_DRAFT_H_

#include <string>

#include "deploy/cli/init/data_look.h"

namespace tessera {

// The text of the job file. Files are named as in `look`, from `directory` on where they lie in it, which is written as
// `written_directory`, and else by their whole paths. Pure: the same look gives the same text.
std::string DraftJob(const DataLook& look, const std::string& name, const std::string& directory,
                     const std::string& written_directory);

// What was seen, in a line: "idx: 1797 training rows of [1, 8, 8], 450 test rows, 10 classes".
std::string DescribeLook(const DataLook& look);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_INIT_JOB_DRAFT_H_
