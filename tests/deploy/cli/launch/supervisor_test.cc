#include "deploy/cli/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tessera {
namespace {

// A folder as a launch makes it, and a process in it.
class Folder {
 public:
  Folder() {
    static int number = 0;
    path_ = absl::StrCat(getenv("TEST_TMPDIR"), "/job-", ++number);
    std::filesystem::create_directories(path_ + "/job");
    std::ofstream(path_ + "/lease").put('\n');
  }

  SupervisedFiles files(const std::string& name = "worker-0") const { return {path_, name}; }
  const std::string& path() const { return path_; }

  absl::StatusOr<bool> Start(const std::string& script, absl::Duration grace = absl::Seconds(60),
                             const std::string& name = "worker-0") const {
    return StartSupervisor(files(name), {"/bin/sh", {"-c", script}, grace});
  }

  std::string Log() const {
    std::ifstream file(files().log());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  ChildProcess::Exit AwaitExit() const {
    for (int i = 0; i < 2000; ++i) {
      if (const auto exit = files().ReadExit()) return *exit;
      absl::SleepFor(absl::Milliseconds(5));
    }
    FAIL("the process does not end");
    return {};
  }

  void AwaitLog(const std::string& text) const {
    for (int i = 0; i < 2000 && Log() != text; ++i) absl::SleepFor(absl::Milliseconds(5));
    REQUIRE(Log() == text);
  }

 private:
  std::string path_;
};

TEST_CASE("a supervised process runs once, in the job's folder, and its end is kept",
          "[cli][launch]") {
  const Folder folder;
  const auto started = folder.Start("pwd; exit 7");
  REQUIRE(started.ok());
  CHECK(*started);
  CHECK(folder.AwaitExit().code == 7);
  CHECK(folder.Log() == folder.path() + "/job\n");
  const auto again = folder.Start("echo again");
  REQUIRE(again.ok());
  CHECK_FALSE(*again);
  CHECK(folder.Log() == folder.path() + "/job\n");
}

TEST_CASE("a supervised process that runs is not started again", "[cli][launch]") {
  const Folder folder;
  REQUIRE(folder.Start("echo one; exec sleep 60").ok());
  folder.AwaitLog("one\n");
  CHECK(RunningSupervisor(folder.files()) > 1);
  CHECK_FALSE(*folder.Start("echo two"));
  CHECK(EndSupervised(folder.path(), absl::Seconds(10)).empty());
  CHECK_FALSE(std::filesystem::exists(folder.path()));
}

TEST_CASE("a process whose lease stands still is asked to end, and its secrets are removed",
          "[cli][launch]") {
  const Folder folder;
  // Long enough for a machine that is too busy to touch the lease for a while.
  constexpr absl::Duration kGrace = absl::Seconds(4);
  REQUIRE(
      folder.Start("trap 'echo asked; exit 3' TERM; echo on; while :; do sleep 0.05; done", kGrace)
          .ok());
  folder.AwaitLog("on\n");
  constexpr absl::Duration kTouchInterval = absl::Milliseconds(150);
  for (absl::Duration touched; touched < 1.25 * kGrace; touched += kTouchInterval) {
    utimensat(AT_FDCWD, folder.files().lease().c_str(), nullptr, 0);
    absl::SleepFor(kTouchInterval);
  }
  CHECK_FALSE(folder.files().ReadExit().has_value());
  CHECK(folder.AwaitExit().code == 3);
  CHECK(folder.Log() == "on\nasked\n");
  for (int i = 0; i < 2000 && std::filesystem::exists(folder.files().job()); ++i) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  CHECK_FALSE(std::filesystem::exists(folder.files().job()));
}

TEST_CASE("SIGTERM to a supervisor asks its process to end", "[cli][launch]") {
  const Folder folder;
  REQUIRE(folder.Start("trap 'exit 5' TERM; echo on; while :; do sleep 0.05; done").ok());
  folder.AwaitLog("on\n");
  kill(RunningSupervisor(folder.files()), SIGTERM);
  CHECK(folder.AwaitExit().code == 5);
}

TEST_CASE("a signal that ends a supervised process is kept", "[cli][launch]") {
  const Folder folder;
  REQUIRE(folder.Start("kill -SEGV $$").ok());
  CHECK(folder.AwaitExit().signal == SIGSEGV);
}

TEST_CASE("all processes of a folder are ended, those that take no signal too", "[cli][launch]") {
  const Folder folder;
  REQUIRE(folder.Start("trap '' TERM; echo on; while :; do sleep 0.05; done").ok());
  REQUIRE(folder.Start("exec sleep 60", absl::Seconds(60), "server-0").ok());
  folder.AwaitLog("on\n");
  CHECK(EndSupervised(folder.path(), absl::Seconds(10)).empty());
  CHECK(RunningSupervisor(folder.files()) == 0);
  CHECK(RunningSupervisor(folder.files("server-0")) == 0);
  CHECK(EndSupervised(folder.path(), absl::Seconds(1)).empty());  // Nothing is there any more.
}

}  // namespace
}  // namespace tessera
