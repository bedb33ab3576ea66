#include "deploy/doctor/machine_memory.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/doctor/memory_groups.h"

namespace tessera {
namespace {

// "MemAvailable:    1234 kB"
std::optional<int64_t> MemAvailable(absl::string_view meminfo) {
  for (const absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (words.size() < 2 || words[0] != "MemAvailable:" ||
        !absl::SimpleAtoi(words[1], &kibibytes)) {
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
std::optional<int64_t> LeftIn(const GroupMemory& group) {
  int64_t most = 0, used = 0;
  if (!absl::SimpleAtoi(group.most, &most) || !absl::SimpleAtoi(group.used, &used)) {
    return std::nullopt;
  }
  return std::max<int64_t>(0, most - std::max<int64_t>(0, used - InactiveFile(group.stat)));
}

}  // namespace

std::optional<MachineMemory> AvailableMemory(absl::string_view meminfo,
                                             const std::vector<GroupMemory>& groups) {
  const std::optional<int64_t> machine = MemAvailable(meminfo);
  if (!machine) return std::nullopt;
  MachineMemory least{*machine, "this machine"};
  for (const GroupMemory& group : groups) {
    const std::optional<int64_t> left = LeftIn(group);
    if (left && *left < least.bytes) least = {*left, "this container"};
  }
  return least;
}

std::optional<MachineMemory> ReadAvailableMemory(const std::string& root) {
  std::vector<GroupMemory> groups;
  for (const MemoryGroup& group : MemoryGroups(root)) {
    const std::string at = group.folder + "/memory.";
    groups.push_back({KernelText(at + (group.is_unified ? "max" : "limit_in_bytes")),
                      KernelText(at + (group.is_unified ? "current" : "usage_in_bytes")),
                      KernelText(at + "stat")});
  }
  return AvailableMemory(KernelText(root + "/proc/meminfo"), groups);
}

}  // namespace tessera
