#include "deploy/doctor/kernel_network.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/time/time.h"

namespace tessera {
namespace {

// As Linux has them where nobody has changed them, on a machine with a few gigabytes.
constexpr KernelNetwork kUntuned = {4 << 20, 6 << 20, true};
constexpr int64_t kExchanged = 22'600'000;

MeasuredDelay Way(int milliseconds) { return {"10.0.0.1:7000", absl::Milliseconds(milliseconds)}; }

TEST_CASE("each setting that slows a long way down is a note with the command that changes it",
          "[doctor]") {
  const Findings findings = CheckKernelNetwork(kUntuned, Way(100), kExchanged, 1);
  REQUIRE(findings.size() == 3);
  for (const Finding& finding : findings) CHECK(finding.kind == Finding::Kind::kNote);
  CHECK(findings[0].what ==
        "10.0.0.1:7000 is 100 ms away: a connection carries at most 40.0 MiB a second there, as "
        "this machine's send "
        "buffers end at 4.0 MiB (net.ipv4.tcp_wmem)");
  CHECK(findings[0].advice ==
        "where the network carries more, as root on all machines: sysctl -w "
        "net.ipv4.tcp_wmem=\"4096 16384 33554432\"");
  CHECK(findings[1].what.find(
            "at most 60.0 MiB a second there, as this machine's receive buffers end at 6.0 MiB") !=
        std::string::npos);
  // 14,480 bytes, twice as many, and so on: 14.8 MB are there after ten round trips.
  CHECK(findings[2].what ==
        "10.0.0.1:7000 is 100 ms away: a connection that was idle begins slowly anew, so that the "
        "21.6 MiB of an "
        "exchange take up to 11 round trips (net.ipv4.tcp_slow_start_after_idle)");
}

TEST_CASE("a call that has several connections has a buffer for each", "[doctor]") {
  const Findings findings = CheckKernelNetwork(kUntuned, Way(100), kExchanged, 8);
  REQUIRE(findings.size() == 2);
  // 22.6 MB have two.
  CHECK(findings[0].what ==
        "10.0.0.1:7000 is 100 ms away: a call's 2 connections carry at most 80.0 MiB a second "
        "there, as this machine's send buffers end at 4.0 MiB (net.ipv4.tcp_wmem)");
  CHECK(findings[1].what.find(" take up to 10 round trips ") != std::string::npos);
  // Eight have 320 MiB a second.
  CHECK(CheckKernelNetwork(kUntuned, Way(100), 8 * kExchanged, 8).size() == 1);
}

TEST_CASE("what its advice sets is no longer told of, on any way", "[doctor]") {
  for (const int milliseconds : {1, 20, 37, 150, 400}) {
    INFO(milliseconds);
    KernelNetwork kernel = kUntuned;
    kernel.slow_start_after_idle = false;
    for (const Finding& finding : CheckKernelNetwork(kernel, Way(milliseconds), kExchanged, 1)) {
      const int64_t wanted = std::stoll(finding.advice.substr(finding.advice.rfind(' ')));
      const bool sends = finding.advice.find("tcp_wmem") != std::string::npos;
      (sends ? kernel.send_buffer_max : kernel.receive_buffer_max) = wanted;
    }
    CHECK(CheckKernelNetwork(kernel, Way(milliseconds), kExchanged, 1).empty());
  }
}

TEST_CASE("nothing is told of a short way, of settings that are not known, or of next to no bytes",
          "[doctor]") {
  CHECK(CheckKernelNetwork(kUntuned, Way(1), kExchanged, 1).empty());
  CHECK(CheckKernelNetwork({}, Way(200), kExchanged, 1).empty());
  CHECK(CheckKernelNetwork({std::nullopt, std::nullopt, true}, Way(200), 14'480, 1).empty());
  CHECK(CheckKernelNetwork({std::nullopt, std::nullopt, true}, Way(200), 14'481, 1).size() == 1);
}

TEST_CASE("this machine's settings are read, and what is no such file is none", "[doctor]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "kernel_network_test";
  std::filesystem::create_directories(folder);
  const auto put = [&](const char* name, const char* text) {
    std::ofstream(folder / name) << text;
  };
  put("tcp_wmem", "4096\t16384\t4194304\n");
  put("tcp_rmem", "4096 131072\n");
  put("tcp_slow_start_after_idle", "1\n");
  KernelNetwork kernel = ReadKernelNetwork(folder.string());
  CHECK(kernel.send_buffer_max == 4194304);
  CHECK(!kernel.receive_buffer_max);
  CHECK(kernel.slow_start_after_idle == true);
  put("tcp_slow_start_after_idle", "0\n");
  std::filesystem::remove(folder / "tcp_wmem");
  kernel = ReadKernelNetwork(folder.string());
  CHECK(!kernel.send_buffer_max);
  CHECK(kernel.slow_start_after_idle == false);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera
