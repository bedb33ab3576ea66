// What this process takes from the machine's memory.
#ifndef TESSERA_COMMON_METRICS_PROCESS_MEMORY_H_
#define TESSERA_COMMON_METRICS_PROCESS_MEMORY_H_

#include <cstdint>

namespace tessera {

struct ProcessMemory {
  uint64_t rss_bytes = 0;       // resident now (VmRSS)
  uint64_t peak_rss_bytes = 0;  // the most ever (VmHWM)
};

// The process's memory by /proc/self/status; zeros where there is none.
ProcessMemory ReadProcessMemory();

}  // namespace tessera

#endif  // TESSERA_COMMON_METRICS_PROCESS_MEMORY_H_
