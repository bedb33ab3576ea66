// The control groups of this process that may limit its memory.
#ifndef TESSERA_COMMON_BASE_MEMORY_GROUPS_H_
#define TESSERA_COMMON_BASE_MEMORY_GROUPS_H_

#include <string>
#include <vector>

namespace tessera {

struct MemoryGroup {
  // The folder of the group's files: memory.max and others. It may not be there.
  std::string folder;
  // Whether the hierarchy is of version 2, whose files have other names than version 1's.
  bool is_unified = false;
};

// The control groups of this process: for each hierarchy its own group first, then those above it up to the root
// of the mount. In a container that sees the names outside of it only the root is there. `root` stands before
// /proc and /sys.
std::vector<MemoryGroup> MemoryGroups(const std::string& root = "");

// The text of a file of the kernel's; empty where it is not there.
std::string KernelText(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_MEMORY_GROUPS_H_
