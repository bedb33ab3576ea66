#include "common/metrics/process_memory.h"

#include <cstdio>

namespace tessera {

ProcessMemory ReadProcessMemory() {
  ProcessMemory memory;
  std::FILE* file = std::fopen("/proc/self/status", "r");
  // Zeros say that the system does not tell, which is no error of the job.
  if (file == nullptr) return memory;
  char line[256];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    // The kernel calls it kB and means 1024 bytes.
    unsigned long long kib = 0;
    if (std::sscanf(line, "VmRSS: %llu kB", &kib) == 1) memory.rss_bytes = kib * 1024;
    if (std::sscanf(line, "VmHWM: %llu kB", &kib) == 1) memory.peak_rss_bytes = kib * 1024;
  }
  std::fclose(file);
  return memory;
}

}  // namespace tessera
