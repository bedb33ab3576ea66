#include "deploy/cli/run/child_process.h"

#include <signal.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera {
namespace {

std::string LogPath() {
  static int number = 0;
  return absl::StrCat(getenv("TEST_TMPDIR"), "/child-", ++number, ".log");
}

absl::StatusOr<ChildProcess> Shell(const std::string& script) {
  return ChildProcess::Start({"child", "/bin/sh", {"-c", script}, LogPath()});
}

ChildProcess::Exit AwaitExit(ChildProcess& child) {
  for (int i = 0; i < 2000; ++i) {
    if (const auto exit = child.Poll()) return *exit;
    absl::SleepFor(absl::Milliseconds(5));
  }
  FAIL("the child does not end");
  return {};
}

bool Exists(pid_t pid) { return kill(pid, 0) == 0; }

TEST_CASE("a child's exit code and last lines are known", "[cli][child]") {
  auto child = Shell("echo one; echo two >&2; echo three; exit 7");
  REQUIRE(child.ok());
  const ChildProcess::Exit exit = AwaitExit(*child);
  CHECK(exit.code == 7);
  CHECK_FALSE(exit.ok());
  CHECK(exit.ToString() == "exit code 7");
  CHECK(child->LogTail(2) == "two\nthree");
}

TEST_CASE("a child that dies of a signal says which", "[cli][child]") {
  auto child = Shell("sleep 100");
  REQUIRE(child.ok());
  child->Signal(SIGKILL);
  CHECK(AwaitExit(*child).ToString() == "signal 9 (Killed)");
}

TEST_CASE("a program that cannot be started is an error with its name", "[cli][child]") {
  const auto child = ChildProcess::Start({"server 0", "/no/such/program", {}, LogPath()});
  CHECK(child.status().code() == absl::StatusCode::kNotFound);
  CHECK(std::string(child.status().message()).find("server 0: cannot start \"/no/such/program\"") !=
        std::string::npos);
}

TEST_CASE("a child does not outlive its owner", "[cli][child]") {
  pid_t pid = 0;
  {
    auto child = Shell("sleep 100");
    REQUIRE(child.ok());
    pid = child->pid();
    CHECK(Exists(pid));
    ChildProcess moved = *std::move(child);
    CHECK(moved.pid() == pid);
    CHECK(Exists(pid));
  }
  CHECK_FALSE(Exists(pid));
}

}  // namespace
}  // namespace tessera
