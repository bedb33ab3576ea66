#include "common/base/process.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera {
std::string ProcessDescription() {
  // One byte less than there is room for, as gethostname need not end a name that it cuts.
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(": ", 1));
    return parts.second;
  }
  return "unknown";
}

}  // namespace tessera
