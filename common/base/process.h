// What this program is and where it runs.
#ifndef TESSERA_COMMON_BASE_PROCESS_H_
#define TESSERA_COMMON_BASE_PROCESS_H_

#include <string>

namespace tessera {

// The release, in status and report.
inline constexpr char kVersion[] = "0.1.0";

// "host:pid", for people.
std::string ProcessDescription();

// The CPU's model name.
std::string CpuName();

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_PROCESS_H_
