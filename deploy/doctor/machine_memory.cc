#include "deploy/doctor/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace tessera {
namespace {

std::string TextOf(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

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

}  // namespace

std::optional<MachineMemory> AvailableMemory(absl::string_view meminfo, absl::string_view group_max,
                                             absl::string_view group_used) {
  const std::optional<int64_t> machine = MemAvailable(meminfo);
  if (!machine) return std::nullopt;
  int64_t most = 0, used = 0;  // "max" is no number: there is no limit.
  const bool is_limited = absl::SimpleAtoi(group_max, &most) && absl::SimpleAtoi(group_used, &used);
  if (is_limited && most - used < *machine) {
    return MachineMemory{std::max<int64_t>(0, most - used), "this container"};
  }
  return MachineMemory{*machine, "this machine"};
}

std::optional<MachineMemory> ReadAvailableMemory() {
  return AvailableMemory(TextOf("/proc/meminfo"), TextOf("/sys/fs/cgroup/memory.max"),
                         TextOf("/sys/fs/cgroup/memory.current"));
}

}  // namespace tessera
