// What this program is and where it runs.
#ifndef TESSERA_COMMON_BASE_PROCESS_H_
#define TESSERA_COMMON_BASE_PROCESS_H_

#include <string>

namespace tessera {

// The version of this tree, which the three programs, the status and the report name. It is that of the newest heading
// in CHANGELOG.md (tests/deploy:tidy_test).
inline constexpr char kVersion[] = "0.2.0";

// Where this process is, "host:pid", for people.
std::string ProcessDescription();

// The CPU's model name.
std::string CpuName();

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_PROCESS_H_
