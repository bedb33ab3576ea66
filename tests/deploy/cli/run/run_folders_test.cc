#include "deploy/cli/run/run_folders.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

std::string NewFolder(const std::string& name) {
  const std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/", name);
  std::filesystem::remove_all(path);
  return path;
}

TEST_CASE("the private folder goes with the run, unless its logs are to be kept",
          "[cli][folders]") {
  setenv("TMPDIR", getenv("TEST_TMPDIR"), 1);
  std::string path;
  {
    const auto folders = RunFolders::Open("");
    REQUIRE(folders.ok());
    path = (*folders)->logs();
    CHECK((*folders)->PrivatePath("x") == path + "/x");
    std::ofstream((*folders)->PrivatePath("x")) << "1";
  }
  CHECK_FALSE(std::filesystem::exists(path));
  {
    const auto folders = RunFolders::Open("");
    REQUIRE(folders.ok());
    (*folders)->KeepLogs();
    path = (*folders)->logs();
  }
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("a folder of logs is one run's at a time, and its private files are elsewhere",
          "[cli][folders]") {
  const std::string logs = NewFolder("logs/of/this");
  {
    const auto first = RunFolders::Open(logs);
    REQUIRE(first.ok());
    CHECK((*first)->logs() == logs);
    CHECK((*first)->PrivatePath("x") != logs + "/x");
    const auto second = RunFolders::Open(logs);
    CHECK(absl::IsInvalidArgument(second.status()));
    CHECK_THAT(std::string(second.status().message()),
               Catch::Contains(logs) && Catch::Contains("another"));
    (*first)->KeepLogs();
  }
  CHECK(std::filesystem::is_empty(logs));
  CHECK(RunFolders::Open(logs).ok());
}

TEST_CASE("an earlier run's logs are removed, and nothing else that is there", "[cli][folders]") {
  const std::string logs = NewFolder("old");
  std::filesystem::create_directories(logs + "/server-9.log.d");
  const std::set<std::string> others = {"server-.log", "server-1.log.gz", "worker-1b.log",
                                        "my-server-1.log", "notes.log"};
  for (const std::string& name : others) std::ofstream(logs + "/" + name) << "1";
  for (const char* name : {"server-0.log", "worker-0.log", "worker-12.log"}) {
    std::ofstream(logs + "/" + name) << "1";
  }
  {
    const auto folders = RunFolders::Open(logs);
    REQUIRE(folders.ok());
    std::ofstream(logs + "/worker-0.log") << "2";
    // Nor of the run that has the folder.
    CHECK_FALSE(RunFolders::Open(logs).ok());
  }
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(logs)) {
    left.insert(entry.path().filename().string());
  }
  std::set<std::string> want = others;
  want.insert({"server-9.log.d", "worker-0.log"});
  CHECK(left == want);
}

TEST_CASE("logs that cannot be written are refused, whether or not their folder is there",
          "[cli][folders]") {
  const std::string file = NewFolder("file");
  std::ofstream(file) << "1";
  // Nobody may make anything in /proc, not even root.
  for (const std::string& logs :
       {std::string("/proc"), std::string("/proc/none"), file, file + "/below"}) {
    INFO(logs);
    const absl::Status status = RunFolders::Open(logs).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::StartsWith("--logs: \"" + logs + "\": "));
  }
}

}  // namespace
}  // namespace tessera
