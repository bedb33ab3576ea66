// What this process costs and where it runs.
#ifndef TESSERA_COMMON_BASE_PROCESS_H_
#define TESSERA_COMMON_BASE_PROCESS_H_

#include <cstdint>
#include <string>

namespace tessera {

// The release, in status and report.
inline constexpr char kVersion[] = "0.1.0";

// Most memory this process ever had resident (VmHWM), and what it has now (VmRSS). 0 where unknown.
int64_t PeakResidentBytes();
int64_t ResidentBytes();

// "host:pid", for people.
std::string ProcessDescription();

// The CPU's model name.
std::string CpuName();

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_PROCESS_H_
