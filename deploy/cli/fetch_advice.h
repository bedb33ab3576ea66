// What to do about a job whose data is not there.
#ifndef TESSERA_DEPLOY_CLI_FETCH_ADVICE_H_
#define TESSERA_DEPLOY_CLI_FETCH_ADVICE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/config/job_reader.h"

namespace tessera {

// A data set that deploy/fetch_data.sh knows.
struct FetchedSet {
  // The name that the script is given, and that the set's folder has.
  absl::string_view name;
  // The script downloads it; otherwise it takes it from a folder of the user's.
  bool is_public = false;
};
std::vector<FetchedSet> FetchedSets();

// The command that gets the data of a job some of whose files are not there: "get it with: deploy/fetch_data.sh mnist".
// Empty where all files are there, or the folder of the data is not named as a set of fetch_data.sh. Looks for the
// script beside the folder that the set's is in, where it lies in the tree and in a bundle.
std::string FetchAdvice(const v1::Job& job);

// Prints all that is wrong with a job on stderr, and how to get its data where these are missing.
void TellJobErrors(const JobReading& reading);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_FETCH_ADVICE_H_
