#include "common/base/memory_groups.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tessera {
namespace {

struct Hierarchy {
  std::string mount;
  // The path of this process's group below the mount.
  std::string group;
  bool is_unified = false;
};

// Parses lines such as "0::/a/b" (version 2) and "9:cpu,memory:/a/b" (version 1) of /proc/self/cgroup.
std::vector<Hierarchy> HierarchiesOf(absl::string_view text, const std::string& mounts) {
  std::vector<Hierarchy> found;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    const bool has_memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    const bool is_unified = parts[0] == "0" && parts[1].empty();
    if (!has_memory && !is_unified) continue;
    // A group that is outside of what this process sees is called /../other.
    const bool is_seen = parts[2].find("..") == absl::string_view::npos;
    found.push_back({is_unified ? mounts : mounts + "/memory",
                     is_seen ? std::string(absl::StripSuffix(parts[2], "/")) : "", is_unified});
  }
  return found;
}

}  // namespace

std::string KernelText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<MemoryGroup> MemoryGroups(const std::string& root) {
  std::vector<MemoryGroup> groups;
  for (const Hierarchy& hierarchy :
       HierarchiesOf(KernelText(root + "/proc/self/cgroup"), root + "/sys/fs/cgroup")) {
    std::string group = hierarchy.group;
    // Limits of all enclosing groups apply: the path is shortened folder by folder, down to the mount itself.
    while (true) {
      groups.push_back({absl::StrCat(hierarchy.mount, group), hierarchy.is_unified});
      if (group.empty()) break;
      group.resize(std::min(group.rfind('/'), group.size() - 1));
    }
  }
  return groups;
}

}  // namespace tessera
