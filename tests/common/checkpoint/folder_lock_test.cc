// One process at a time has a folder's lock, and a dead one has none.
#include "common/checkpoint/folder_lock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>

namespace tessera {
namespace {

std::string EmptyFolder() {
  std::string path = std::string(getenv("TEST_TMPDIR")) + "/lock-XXXXXX";
  REQUIRE(mkdtemp(&path[0]) != nullptr);
  return path;
}

TEST_CASE("a file system without locks is told from a folder that cannot be used", "[checkpoint]") {
  const std::string folder = EmptyFolder();
  for (const auto& [action, is_unlockable] :
       {std::make_pair("enolck", true), std::make_pair("enosys", true),
        std::make_pair("eopnotsupp", true), std::make_pair("eio", false)}) {
    // A process reads its failpoints once: this case comes before those that take a lock here.
    const pid_t child = fork();
    if (child == 0) {
      setenv("TESSERA_FAILPOINTS", (std::string("folder.lock=") + action).c_str(), 1);
      _exit(absl::IsUnimplemented(FolderLock::Take(folder, "lock").status()) ? 1 : 0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CAPTURE(action);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == (is_unlockable ? 1 : 0));
  }
}

TEST_CASE("a lock is one's until it is given back", "[checkpoint]") {
  const std::string folder = EmptyFolder();
  auto lock = FolderLock::Take(folder, "lock");
  REQUIRE(lock.ok());
  const absl::Status second = FolderLock::Take(folder, "lock").status();
  CHECK(absl::IsFailedPrecondition(second));
  CHECK(second.message() == "\"" + folder + "\" is in use by another process");
  CHECK(FolderLock::Take(folder, "other").ok());
  lock->reset();
  CHECK(FolderLock::Take(folder, "lock").ok());
  CHECK(FolderLock::Take(folder + "/none", "lock").status().message() ==
        "checkpoint: \"" + folder + "/none/lock\" cannot be made: No such file or directory");
}

TEST_CASE("a process that is killed has no lock", "[checkpoint]") {
  const std::string folder = EmptyFolder();
  int taken[2];
  REQUIRE(pipe(taken) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FolderLock::Take(folder, "lock");
    const char ok = lock.ok() ? 'y' : 'n';
    (void)!write(taken[1], &ok, 1);
    while (true) pause();
  }
  char ok = 0;
  REQUIRE(read(taken[0], &ok, 1) == 1);
  CHECK(ok == 'y');
  CHECK(absl::IsFailedPrecondition(FolderLock::Take(folder, "lock").status()));
  kill(child, SIGKILL);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(FolderLock::Take(folder, "lock").ok());
}

}  // namespace
}  // namespace tessera
