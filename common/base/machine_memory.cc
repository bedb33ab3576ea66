#include "common/base/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tessera {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "MemAvailable:    1234 kB"
std::optional<int64_t> Line(absl::string_view meminfo, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (words.size() < 2 || words[0] != name || !absl::SimpleAtoi(words[1], &kibibytes)) {
      continue;
    }
    return kibibytes << 10;
  }
  return std::nullopt;
}

// Pages of files that were not used lately: version 1 counts those of groups below under another name.
int64_t InactiveFile(absl::string_view stat) {
  int64_t own = 0, total = 0;
  for (const absl::string_view line : absl::StrSplit(stat, '\n')) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "total_inactive_file ")) {
      if (!absl::SimpleAtoi(rest, &total)) total = 0;
    } else if (absl::ConsumePrefix(&rest, "inactive_file ")) {
      if (!absl::SimpleAtoi(rest, &own)) own = 0;
    }
  }
  return std::max(own, total);
}

// nullopt: there is no limit, which "max" says, or no group.
std::optional<int64_t> MostOf(const GroupMemory& group) {
  int64_t most = 0;
  if (!absl::SimpleAtoi(group.most, &most)) return std::nullopt;
  return most;
}

std::optional<int64_t> LeftIn(const GroupMemory& group) {
  int64_t most = 0, used = 0;
  if (!absl::SimpleAtoi(group.most, &most) || !absl::SimpleAtoi(group.used, &used)) {
    return std::nullopt;
  }
  return std::max<int64_t>(0, most - std::max<int64_t>(0, used - InactiveFile(group.stat)));
}

struct Hierarchy {
  std::string mount;
  // Of this process's group, below that.
  std::string group;
  bool is_unified = false;
};

// Of the lines "0::/a/b" (version 2) and "9:cpu,memory:/a/b" (version 1) of /proc/self/cgroup.
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

// From its own up to the root of the mount. In a container that sees the names outside of it only the root is there.
std::vector<GroupMemory> GroupsOf(const Hierarchy& hierarchy) {
  std::vector<GroupMemory> groups;
  std::string group = hierarchy.group;
  while (true) {
    const std::string at = absl::StrCat(hierarchy.mount, group, "/memory.");
    groups.push_back({TextOf(at + (hierarchy.is_unified ? "max" : "limit_in_bytes")),
                      TextOf(at + (hierarchy.is_unified ? "current" : "usage_in_bytes")),
                      TextOf(at + "stat")});
    if (group.empty()) return groups;
    group.resize(std::min(group.rfind('/'), group.size() - 1));
  }
}

std::vector<GroupMemory> ReadGroups(const std::string& root) {
  std::vector<GroupMemory> groups;
  for (const Hierarchy& hierarchy :
       HierarchiesOf(TextOf(root + "/proc/self/cgroup"), root + "/sys/fs/cgroup")) {
    for (GroupMemory& group : GroupsOf(hierarchy)) groups.push_back(std::move(group));
  }
  return groups;
}

template <typename Say>
std::optional<MachineMemory> LeastOf(const std::optional<int64_t>& machine,
                                     const std::vector<GroupMemory>& groups, const Say& say) {
  if (!machine) return std::nullopt;
  MachineMemory least{*machine, "this machine"};
  for (const GroupMemory& group : groups) {
    const std::optional<int64_t> said = say(group);
    if (said && *said < least.bytes) least = {*said, "this container"};
  }
  return least;
}

}  // namespace

std::optional<MachineMemory> AvailableMemory(absl::string_view meminfo,
                                             const std::vector<GroupMemory>& groups) {
  return LeastOf(Line(meminfo, "MemAvailable:"), groups, LeftIn);
}

std::optional<MachineMemory> WholeMemory(absl::string_view meminfo,
                                         const std::vector<GroupMemory>& groups) {
  return LeastOf(Line(meminfo, "MemTotal:"), groups, MostOf);
}

std::optional<MachineMemory> ReadAvailableMemory(const std::string& root) {
  return AvailableMemory(TextOf(root + "/proc/meminfo"), ReadGroups(root));
}

std::optional<MachineMemory> ReadWholeMemory(const std::string& root) {
  return WholeMemory(TextOf(root + "/proc/meminfo"), ReadGroups(root));
}

}  // namespace tessera
