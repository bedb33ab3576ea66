// A commented job file for a data set: a network that fits its rows, and keys that a first run can go with.
#ifndef TESSERA_DEPLOY_CLI_INIT_JOB_DRAFT_H_
#define TESSERA_DEPLOY_CLI_INIT_JOB_DRAFT_H_

#include <string>

#include "deploy/cli/init/data_look.h"

namespace tessera {

// How the draft names things.
struct DraftNames {
  // The job's name.
  std::string job;
  // The job file's, for the command that runs it.
  std::string file;
  // The folder that most of the data lies in, and what data.directory says of it.
  std::string directory;
  std::string written_directory;
};

// The text of the job file. Data files are named from the folder on where they lie in it, and else by their whole
// paths. Pure: the same look gives the same text.
std::string DraftJob(const DataLook& look, const DraftNames& names);

// What was seen, in a line: "idx: 1797 training rows of [1, 8, 8], 450 test rows, 10 classes".
std::string DescribeLook(const DataLook& look);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_INIT_JOB_DRAFT_H_
