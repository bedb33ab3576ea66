#include "common/base/machine_memory.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/memory_groups.h"

namespace tessera {
namespace {

// The bytes of a line such as "MemAvailable:    1234 kB".
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

// The bytes of files' pages that were not used lately: version 1 counts those of groups below under another name.
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

// The limit of a control group; nullopt: there is none, which "max" says, or no group.
std::optional<int64_t> MostOf(const GroupMemory& group) {
  int64_t most = 0;
  if (!absl::SimpleAtoi(group.most, &most)) return std::nullopt;
  return most;
}

// What a control group's limit leaves, where it has one. Pages of files that were not used lately count as free,
// as the kernel drops them first.
std::optional<int64_t> LeftIn(const GroupMemory& group) {
  int64_t most = 0, used = 0;
  if (!absl::SimpleAtoi(group.most, &most) || !absl::SimpleAtoi(group.used, &used)) {
    return std::nullopt;
  }
  return std::max<int64_t>(0, most - std::max<int64_t>(0, used - InactiveFile(group.stat)));
}

// What all control groups above this process say; the files are named otherwise in version 2.
std::vector<GroupMemory> ReadGroups(const std::string& root) {
  std::vector<GroupMemory> groups;
  for (const MemoryGroup& group : MemoryGroups(root)) {
    const std::string at = group.folder + "/memory.";
    groups.push_back({KernelText(at + (group.is_unified ? "max" : "limit_in_bytes")),
                      KernelText(at + (group.is_unified ? "current" : "usage_in_bytes")),
                      KernelText(at + "stat")});
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
  return AvailableMemory(KernelText(root + "/proc/meminfo"), ReadGroups(root));
}

std::optional<MachineMemory> ReadWholeMemory(const std::string& root) {
  return WholeMemory(KernelText(root + "/proc/meminfo"), ReadGroups(root));
}

}  // namespace tessera
