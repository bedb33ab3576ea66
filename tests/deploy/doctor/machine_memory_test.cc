#include "deploy/doctor/machine_memory.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

constexpr char kMeminfo[] =
    "MemTotal:       65536 kB\n"
    "MemFree:         1024 kB\n"
    "MemAvailable:    4096 kB\n"
    "SwapFree:           0 kB\n";

TEST_CASE("what the kernel can give is available", "[doctor]") {
  const auto memory = AvailableMemory(kMeminfo, "", "");
  REQUIRE(memory.has_value());
  CHECK(memory->bytes == 4 << 20);
  CHECK(memory->of == "this machine");
  CHECK(AvailableMemory(kMeminfo, "max\n", "1048576\n")->of == "this machine");
}

TEST_CASE("a container has no more than its control group leaves", "[doctor]") {
  const auto memory = AvailableMemory(kMeminfo, "3145728\n", "1048576\n");
  REQUIRE(memory.has_value());
  CHECK(memory->bytes == 2 << 20);
  CHECK(memory->of == "this container");
  CHECK(AvailableMemory(kMeminfo, "1048576\n", "1048577\n")->bytes == 0);
  // As much as the machine has not.
  CHECK(AvailableMemory(kMeminfo, "1073741824\n", "0\n")->of == "this machine");
}

TEST_CASE("what does not say how much there is says nothing", "[doctor]") {
  CHECK_FALSE(AvailableMemory("", "1048576\n", "0\n").has_value());
  CHECK_FALSE(AvailableMemory("MemAvailable:\nMemAvailable: much kB\n", "", "").has_value());
  CHECK(ReadAvailableMemory().has_value());
}

}  // namespace
}  // namespace tessera
