// What `tessera doctor --json` has said on another machine.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_DOCTOR_ANSWER_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_DOCTOR_ANSWER_H_

#include <string>
#include <vector>

namespace tessera {

// The problems, each with what to do. `text` is its output, before and behind whose object other lines may stand; none
// where there is no such object in it.
std::vector<std::string> ProblemsOf(const std::string& text);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_DOCTOR_ANSWER_H_
