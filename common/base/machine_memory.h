// How much memory this machine has.
#ifndef TESSERA_COMMON_BASE_MACHINE_MEMORY_H_
#define TESSERA_COMMON_BASE_MACHINE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera {

struct MachineMemory {
  int64_t bytes = 0;
  // Whose memory it is: "this machine", or "this container".
  std::string of;
};

// What one control group says, as the kernel wrote it; empty where it does not.
struct GroupMemory {
  // The texts of memory.max or memory.limit_in_bytes, and of memory.current or memory.usage_in_bytes.
  std::string most;
  std::string used;
  // The text of memory.stat.
  std::string stat;
};

// The memory that can be had: the least of what the kernel thinks can be had without swapping (MemAvailable of
// `meminfo`, the text of /proc/meminfo) and of what each of the control groups leaves, not counting pages of files
// that the kernel drops before it lacks memory. nullopt: `meminfo` does not say.
std::optional<MachineMemory> AvailableMemory(absl::string_view meminfo,
                                             const std::vector<GroupMemory>& groups);

// The memory of this machine that is free now, as far as this process's control group and all groups above it that
// can be seen allow, of either version. `root` is the folder that has /proc and /sys/fs/cgroup in it.
std::optional<MachineMemory> ReadAvailableMemory(const std::string& root = "");

// The whole memory, whoever has it now: the least of MemTotal and of what the control groups may take.
std::optional<MachineMemory> WholeMemory(absl::string_view meminfo,
                                         const std::vector<GroupMemory>& groups);
// The whole memory of this machine, read as ReadAvailableMemory reads.
std::optional<MachineMemory> ReadWholeMemory(const std::string& root = "");

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_MACHINE_MEMORY_H_
