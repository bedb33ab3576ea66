#include "deploy/cli/run/memory_kills.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/memory_groups.h"

namespace tessera {
namespace {

// Version 1 has no word for no limit, but a number of pages that no machine has.
constexpr int64_t kUnlimitedFrom = int64_t{1} << 60;

// How many processes the kernel says it has killed for want of memory; nothing where the file does not tell.
std::optional<int64_t> CounterIn(const std::string& path) {
  const std::string text = KernelText(path);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    int64_t count = 0;
    if (absl::ConsumePrefix(&line, "oom_kill ") && absl::SimpleAtoi(line, &count)) return count;
  }
  return std::nullopt;
}

// The least memory limit of this process's groups, in words.
std::string LimitOf(const std::vector<MemoryGroup>& groups) {
  std::string text;
  int64_t least = kUnlimitedFrom;
  for (const MemoryGroup& group : groups) {
    const std::string path =
        absl::StrCat(group.folder, group.is_unified ? "/memory.max" : "/memory.limit_in_bytes");
    int64_t bytes = 0;
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(KernelText(path)), &bytes)) continue;
    if (bytes >= least) continue;
    least = bytes;
    text = absl::StrCat(path, " is ", bytes);
  }
  return text;
}

}  // namespace

MemoryKills::MemoryKills(const std::string& root) {
  const std::vector<MemoryGroup> groups = MemoryGroups(root);
  limit_ = LimitOf(groups);
  std::vector<std::string> paths;
  for (const MemoryGroup& group : groups) {
    paths.push_back(
        absl::StrCat(group.folder, group.is_unified ? "/memory.events" : "/memory.oom_control"));
  }
  paths.push_back(root + "/proc/vmstat");
  for (std::string& path : paths) {
    const std::optional<int64_t> count = CounterIn(path);
    if (!count.has_value()) continue;
    path_ = std::move(path);
    explained_ = *count;
    return;
  }
}

std::string MemoryKills::Explain() {
  const std::optional<int64_t> now = path_.empty() ? std::nullopt : CounterIn(path_);
  if (!now.has_value() || *now <= explained_) return "";
  ++explained_;
  return absl::StrCat("out of memory, as the kernel counts in ", path_, limit_.empty() ? "" : "; ",
                      limit_);
}

}  // namespace tessera
