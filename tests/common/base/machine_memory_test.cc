#include "common/base/machine_memory.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tessera {
namespace {

constexpr char kMeminfo[] =
    "MemTotal:       65536 kB\n"
    "MemFree:         1024 kB\n"
    "MemAvailable:    4096 kB\n"
    "SwapFree:           0 kB\n";

TEST_CASE("what the kernel can give is available", "[doctor]") {
  const auto memory = AvailableMemory(kMeminfo, {});
  REQUIRE(memory.has_value());
  CHECK(memory->bytes == 4 << 20);
  CHECK(memory->of == "this machine");
  CHECK(AvailableMemory(kMeminfo, {{"max\n", "1048576\n", ""}})->of == "this machine");
}

TEST_CASE("a container has no more than its control group leaves", "[doctor]") {
  const auto memory = AvailableMemory(kMeminfo, {{"3145728\n", "1048576\n", ""}});
  REQUIRE(memory.has_value());
  CHECK(memory->bytes == 2 << 20);
  CHECK(memory->of == "this container");
  CHECK(AvailableMemory(kMeminfo, {{"1048576\n", "1048577\n", ""}})->bytes == 0);
  // As much as the machine has not.
  CHECK(AvailableMemory(kMeminfo, {{"1073741824\n", "0\n", ""}})->of == "this machine");
}

TEST_CASE("pages of files that the kernel drops are not counted as used", "[doctor]") {
  const char* const stat = "anon 1\ninactive_file 524288\nactive_file 7\n";
  CHECK(AvailableMemory(kMeminfo, {{"2097152\n", "1048576\n", stat}})->bytes == 3 << 19);
  // Version 1 has its children's under another name.
  const char* const total = "inactive_file 0\ntotal_inactive_file 1048576\n";
  CHECK(AvailableMemory(kMeminfo, {{"2097152\n", "1048576\n", total}})->bytes == 2 << 20);
  // Both were read at different times.
  CHECK(AvailableMemory(kMeminfo, {{"2097152\n", "1048576\n", "inactive_file 2097152\n"}})->bytes ==
        2 << 20);
}

// A machine's files.
struct Machine {
  Machine() {
    const char* const tmp = std::getenv("TEST_TMPDIR");
    root = std::string(tmp != nullptr ? tmp : "/tmp") + "/machine-XXXXXX";
    REQUIRE(mkdtemp(root.data()) != nullptr);
    Write("/proc/meminfo", kMeminfo);
  }
  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void Group(const std::string& path, const std::string& most, const std::string& used) const {
    Write("/sys/fs/cgroup" + path + "/memory.max", most);
    Write("/sys/fs/cgroup" + path + "/memory.current", used);
  }
  void OldGroup(const std::string& path, const std::string& most, const std::string& used) const {
    Write("/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes", most);
    Write("/sys/fs/cgroup/memory" + path + "/memory.usage_in_bytes", used);
  }
  int64_t Bytes() const { return ReadAvailableMemory(root)->bytes; }
  std::string root;
};

TEST_CASE("the least of a control group and those above it is available", "[doctor]") {
  const Machine machine;
  CHECK(machine.Bytes() == 4 << 20);
  machine.Write("/proc/self/cgroup", "0::/a.slice/b.scope\n");
  CHECK(machine.Bytes() == 4 << 20);
  machine.Group("", "3145728\n", "0\n");
  CHECK(machine.Bytes() == 3 << 20);
  machine.Group("/a.slice", "2097152\n", "1024\n");
  CHECK(machine.Bytes() == (2 << 20) - 1024);
  machine.Group("/a.slice/b.scope", "1048576\n", "0\n");
  CHECK(machine.Bytes() == 1 << 20);
  CHECK(ReadAvailableMemory(machine.root)->of == "this container");
  machine.Group("/a.slice/b.scope", "max\n", "0\n");
  CHECK(machine.Bytes() == (2 << 20) - 1024);
  // Others' groups are not its own.
  machine.Write("/proc/self/cgroup", "0::/../c.scope\n");
  CHECK(machine.Bytes() == 3 << 20);
}

TEST_CASE("control groups of version 1 are limits, too", "[doctor]") {
  const Machine machine;
  machine.Write("/proc/self/cgroup", "11:cpu,cpuacct:/c\n5:memory:/docker/12ab\n0::/docker/12ab\n");
  machine.OldGroup("", "9223372036854771712\n", "1048576\n");
  CHECK(machine.Bytes() == 4 << 20);
  machine.OldGroup("/docker/12ab", "2097152\n", "1048576\n");
  CHECK(machine.Bytes() == 1 << 20);
  // A container that sees the names outside of it has its own at the root.
  machine.Write("/proc/self/cgroup", "5:cpuset,memory:/docker/34cd\n");
  machine.OldGroup("", "3145728\n", "0\n");
  CHECK(machine.Bytes() == 3 << 20);
}

TEST_CASE("all of the memory is there whoever has it now", "[base]") {
  const Machine machine;
  CHECK(ReadWholeMemory(machine.root)->bytes == 64 << 20);
  CHECK(ReadWholeMemory(machine.root)->of == "this machine");
  machine.Write("/proc/self/cgroup", "0::/a.slice\n");
  machine.Group("", "33554432\n", "33554432\n");
  machine.Group("/a.slice", "max\n", "33554432\n");
  CHECK(ReadWholeMemory(machine.root)->bytes == 32 << 20);
  CHECK(ReadWholeMemory(machine.root)->of == "this container");
  CHECK_FALSE(WholeMemory("MemAvailable:  4096 kB\n", {}).has_value());
}

TEST_CASE("what does not say how much there is says nothing", "[doctor]") {
  CHECK_FALSE(AvailableMemory("", {{"1048576\n", "0\n", ""}}).has_value());
  CHECK_FALSE(AvailableMemory("MemAvailable:\nMemAvailable: much kB\n", {}).has_value());
  CHECK(ReadAvailableMemory().has_value());
}

}  // namespace
}  // namespace tessera
