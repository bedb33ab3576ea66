#include "deploy/cli/launch/host_probe.h"

#include <stdio.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

constexpr char kMachine[] = "Linux x86_64";

HostFacts Good() {
  HostFacts facts;
  facts.is_whole = true;
  facts.machine = kMachine;
  facts.directory = "/scratch/tessera";
  facts.is_writable = true;
  facts.room_bytes = 1 << 30;
  return facts;
}

TEST_CASE("the probe's answers are found among greetings", "[cli][launch]") {
  const HostFacts facts = ReadProbe(
      "Welcome!\n@directory /d\n@machine Linux aarch64\n@clock 1700000000\n@writable\n@room 2048\n"
      "@missing gzip\n@socket   sl  local_address rem_address   st\n"
      "@socket    0: 0100007F:1B58 00000000:0000 0A 00000000:00000000\n"
      "@socket    1: 0100007F:1B59 0100007F:1B58 01 00000000:00000000\n@bundle\n@end\n");
  CHECK(facts.is_whole);
  CHECK(facts.directory == "/d");
  CHECK(facts.machine == "Linux aarch64");
  CHECK(facts.room_bytes == 2048 << 10);
  CHECK(facts.missing == std::vector<std::string>{"gzip"});
  CHECK(facts.taken == std::set<int>{7000});
  CHECK(facts.has_bundle);
  CHECK_FALSE(facts.has_data);
  CHECK_FALSE(ReadProbe("@machine Linux").is_whole);
}

TEST_CASE("the probe runs in this machine's shell", "[cli][launch]") {
  const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/it's there";
  FILE* const pipe =
      popen(("/bin/sh -c " + ShellWord(ProbeScript(folder, "0123", "4567"))).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) text.push_back(static_cast<char>(c));
  pclose(pipe);
  const HostFacts facts = ReadProbe(text);
  CHECK(facts.is_whole);
  CHECK(facts.is_writable);
  CHECK(facts.directory == folder);
  CHECK(facts.room_bytes > 0);
  CHECK(facts.cores > 0);
  CHECK_FALSE(facts.has_bundle);
  CHECK(FaultsOf(facts, facts.machine, 1).empty());
}

TEST_CASE("each fault of a host is told, with what to do", "[cli][launch]") {
  CHECK(FaultsOf(Good(), kMachine, 1 << 20).empty());
  HostFacts facts = Good();
  facts.machine = "Linux aarch64";
  facts.missing = {"tar"};
  facts.room_bytes = 1 << 10;
  const std::vector<std::string> faults = FaultsOf(facts, kMachine, 1 << 20);
  REQUIRE(faults.size() == 3);
  CHECK(faults[0] ==
        "it is \"Linux aarch64\", want \"Linux x86_64\", which the bundle is made for");
  CHECK(absl::StrContains(faults[1], "no tar"));
  CHECK(absl::StrContains(faults[2], "has room for 1.0 KiB, the bundle takes 1.0 MiB"));
  facts = Good();
  facts.has_bundle = true;
  facts.room_bytes = 0;
  CHECK(FaultsOf(facts, kMachine, 1 << 20).empty());
  facts.is_writable = false;
  CHECK(FaultsOf(facts, kMachine, 1 << 20).size() == 1);
  CHECK(FaultsOf(HostFacts(), kMachine, 1).size() == 1);
}

TEST_CASE("a clock that is off is noted, and the time of the call is not", "[cli][launch]") {
  HostFacts facts = Good();
  facts.clock_seconds = 1000;
  const auto at = [](double seconds) { return absl::FromUnixSeconds(0) + absl::Seconds(seconds); };
  CHECK(ClockNote(facts, at(999), at(1001)).empty());
  CHECK(ClockNote(facts, at(1003.5), at(1004)).empty());
  CHECK(absl::StrContains(ClockNote(facts, at(980), at(990)), "10s ahead of"));
  CHECK(absl::StrContains(ClockNote(facts, at(1021), at(1022)), "20s behind"));
}

}  // namespace
}  // namespace tessera
