// How much memory this machine has for processes that are yet to start.
#ifndef TESSERA_DEPLOY_DOCTOR_MACHINE_MEMORY_H_
#define TESSERA_DEPLOY_DOCTOR_MACHINE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

struct MachineMemory {
  int64_t bytes = 0;
  // "this machine", or "this container": whose they are.
  std::string of;
};

// The lesser of what the kernel thinks can be had without swapping (MemAvailable of `meminfo`, the text of
// /proc/meminfo) and of what a control group leaves; `group_max` and `group_used` are the texts of its memory.max and
// memory.current, empty where there is none. nullopt: `meminfo` does not say.
std::optional<MachineMemory> AvailableMemory(absl::string_view meminfo, absl::string_view group_max,
                                             absl::string_view group_used);

// Of this machine, now; in a container whose control group is the root of those that it sees.
std::optional<MachineMemory> ReadAvailableMemory();

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_MACHINE_MEMORY_H_
