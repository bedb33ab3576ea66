#include "common/base/process.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tessera {
namespace {

// "VmHWM:   1234 kB" in /proc/self/status.
int64_t StatusBytes(absl::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, key)) continue;
    absl::ConsumeSuffix(&rest, " kB");
    int64_t kilobytes = 0;
    if (absl::SimpleAtoi(rest, &kilobytes)) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

int64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }
int64_t ResidentBytes() { return StatusBytes("VmRSS:"); }

std::string ProcessDescription() {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    return parts.second;
  }
  return "unknown";
}

}  // namespace tessera
