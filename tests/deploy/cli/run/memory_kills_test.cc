#include "deploy/cli/run/memory_kills.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// A machine's /proc and /sys.
struct Machine {
  Machine() {
    static int number = 0;
    root = absl::StrCat(getenv("TEST_TMPDIR"), "/machine-", ++number);
    std::filesystem::remove_all(root);
  }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root;
};

TEST_CASE("a kill that the kernel counts in its group, of either version, was for want of memory",
          "[cli][run]") {
  const bool is_unified = GENERATE(true, false);
  const std::string group = is_unified ? "/sys/fs/cgroup/job" : "/sys/fs/cgroup/memory/job";
  const std::string file = group + (is_unified ? "/memory.events" : "/memory.oom_control");
  const std::string limit = group + (is_unified ? "/memory.max" : "/memory.limit_in_bytes");
  const auto counted = [is_unified](int kills) {
    return absl::StrCat(is_unified ? "low 0\noom 9\noom_kill " : "under_oom 0\noom_kill ", kills,
                        "\noom_group_kill 0\n");
  };
  const Machine machine;
  machine.Write("/proc/self/cgroup", is_unified ? "0::/job\n" : "4:cpu,memory:/job\n0::/\n");
  machine.Write("/proc/vmstat", "oom_kill 70\n");
  machine.Write(limit, "268435456\n");
  machine.Write(file, counted(3));
  MemoryKills kills(machine.root);
  // Somebody else sent the signal.
  CHECK(kills.Explain().empty());
  machine.Write("/proc/vmstat", "oom_kill 71\n");  // In another group.
  CHECK(kills.Explain().empty());
  machine.Write(file, counted(5));
  for (int i = 0; i < 2; ++i) {
    CHECK(kills.Explain() == absl::StrCat("out of memory, as the kernel counts in ", machine.root,
                                          file, "; ", machine.root, limit, " is 268435456"));
  }
  CHECK(kills.Explain().empty());
}

TEST_CASE("where no group counts the machine does, and where nobody counts nothing is said",
          "[cli][run]") {
  const Machine machine;
  machine.Write("/proc/self/cgroup", "0::/\n");
  MemoryKills nobody(machine.root);
  machine.Write("/proc/vmstat", "nr_free_pages 7\noom_kill 1\n");
  CHECK(nobody.Explain().empty());
  MemoryKills kills(machine.root);
  CHECK(kills.Explain().empty());
  machine.Write("/proc/vmstat", "nr_free_pages 7\noom_kill 2\n");
  CHECK(kills.Explain() ==
        absl::StrCat("out of memory, as the kernel counts in ", machine.root, "/proc/vmstat"));
}

TEST_CASE("a group that is only there under its parent's name is the parent's", "[cli][run]") {
  const Machine machine;
  machine.Write("/proc/self/cgroup", "4:memory:/docker/1f/\n");
  machine.Write("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill 0\n");
  machine.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  MemoryKills kills(machine.root);
  machine.Write("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill 1\n");
  // That number of version 1's is no limit.
  CHECK(kills.Explain() == absl::StrCat("out of memory, as the kernel counts in ", machine.root,
                                        "/sys/fs/cgroup/memory/memory.oom_control"));
}

}  // namespace
}  // namespace tessera
