#include "deploy/cli/run/child_process.h"

#include <signal.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
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

TEST_CASE("a child has what was set in its environment, and the rest of its parent's",
          "[cli][child]") {
  setenv("CHILD_KEPT", "kept", 1);
  setenv("CHILD_CHANGED", "before", 1);
  ChildProcess::Options options = {
      "child", "/bin/sh", {"-c", "echo $CHILD_KEPT $CHILD_CHANGED $CHILD_NEW"}, LogPath()};
  options.environment = {"CHILD_CHANGED=after", "CHILD_NEW=a b=c"};
  auto child = ChildProcess::Start(options);
  REQUIRE(child.ok());
  CHECK(AwaitExit(*child).ok());
  CHECK(child->LogTail(1) == "kept after a b=c");
  CHECK(std::string(getenv("CHILD_CHANGED")) == "before");
}

TEST_CASE("what a child has started ends with it", "[cli][child]") {
  pid_t grandchild = 0;
  {
    auto child = Shell("sleep 1000 & echo $!; wait");
    REQUIRE(child.ok());
    for (int i = 0; i < 2000 && child->LogTail(1).empty(); ++i) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    REQUIRE(absl::SimpleAtoi(child->LogTail(1), &grandchild));
    CHECK(Exists(grandchild));
  }
  // Whoever takes up orphans sees to the rest.
  for (int i = 0; i < 2000 && Exists(grandchild); ++i) absl::SleepFor(absl::Milliseconds(5));
  CHECK_FALSE(Exists(grandchild));
}

TEST_CASE("a child that dies of a signal says which", "[cli][child]") {
  auto child = Shell("sleep 100");
  REQUIRE(child.ok());
  child->Signal(SIGKILL);
  CHECK(AwaitExit(*child).ToString() == "signal 9 (Killed)");
}

TEST_CASE("what a signal was sent for is told where that is known", "[cli][child]") {
  for (const auto& [signal, words] :
       {std::pair<int, std::string>{SIGSEGV, "signal 11 (Segmentation fault)"},
        {SIGABRT, "signal 6 (Aborted)"},
        {SIGBUS, "signal 7 (Bus error)"},
        {SIGXCPU, "signal 24 (CPU time limit exceeded)"},
        {SIGKILL, "signal 9 (Killed): out of memory"}}) {
    int asked = 0;
    const auto why = [&asked] {
      ++asked;
      return std::string("out of memory");
    };
    auto child = ChildProcess::Start(
        {"child", "/bin/sh", {"-c", "ulimit -c 0; exec sleep 100"}, LogPath(), why});
    REQUIRE(child.ok());
    child->Signal(signal);
    CHECK(AwaitExit(*child).ToString() == words);
    CHECK(child->Poll()->ToString() == words);
    CHECK(asked == (signal == SIGKILL ? 1 : 0));
    CHECK_THAT(std::string(ChildError(*child, *child->Poll(), "").message()),
               Catch::Contains("child ended with " + words));
  }
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

// A connection that is a shell's script, which is told how much of the log is there.
class ScriptConnection final : public ChildConnection {
 public:
  ScriptConnection(std::string script, absl::Duration grace)
      : script_(std::move(script)), grace_(grace) {}
  std::vector<std::string> ArgumentsFrom(int64_t log_bytes) const override {
    return {"-c", script_, "sh", absl::StrCat(log_bytes)};
  }
  std::string LastWords() const override { return "cut"; }
  absl::Duration grace() const override { return grace_; }

 private:
  const std::string script_;
  const absl::Duration grace_;
};

absl::StatusOr<ChildProcess> Connect(const std::string& script, absl::Duration grace,
                                     std::vector<std::string>* told) {
  const auto connection = std::make_shared<ScriptConnection>(script, grace);
  ChildProcess::Options options;
  options.name = "worker 1";
  options.program = "/bin/sh";
  options.arguments = connection->ArgumentsFrom(0);
  options.log_path = LogPath();
  options.connection = connection;
  options.tell = [told](const std::string& text) { told->push_back(text); };
  return ChildProcess::Start(std::move(options));
}

TEST_CASE("a connection that is lost is made again, and the log goes on", "[cli][child]") {
  std::vector<std::string> told;
  auto child = Connect("echo from $1; [ $1 = 0 ] && exit 255; [ $1 = 7 ] && kill -9 $$; exit 4",
                       absl::Seconds(30), &told);
  REQUIRE(child.ok());
  const ChildProcess::Exit exit = AwaitExit(*child);
  CHECK(exit.code == 4);
  CHECK(child->LogTail(9) == "from 0\nfrom 7\nfrom 14");
  // It has not held between its losses.
  CHECK(told == std::vector<std::string>{"the connection to worker 1 is lost (cut), which goes on "
                                         "for 30s; connecting again"});
}

TEST_CASE("a connection that is not made for the grace is given up", "[cli][child]") {
  std::vector<std::string> told;
  auto child = Connect("exit 255", absl::Milliseconds(100), &told);
  REQUIRE(child.ok());
  const ChildProcess::Exit exit = AwaitExit(*child);
  CHECK(exit.ToString() == "exit code 255: no connection for 100ms: cut");
}

TEST_CASE("a connection ends as the process that it is to", "[cli][child]") {
  std::vector<std::string> told;
  auto child = Connect("exit 137", absl::Seconds(30), &told);
  REQUIRE(child.ok());
  CHECK(AwaitExit(*child).signal == SIGKILL);
  CHECK(told.empty());
}

TEST_CASE("a connection hears that this process is there, and what it asks for", "[cli][child]") {
  std::vector<std::string> told;
  auto child = Connect("head -c 1; head -c 1; exit 0", absl::Seconds(30), &told);
  REQUIRE(child.ok());
  CHECK_FALSE(child->Poll().has_value());
  child->Signal(SIGTERM);
  CHECK(AwaitExit(*child).ok());
  CHECK(child->LogTail(1) == ".T");
}

}  // namespace
}  // namespace tessera
