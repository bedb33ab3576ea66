#include "deploy/cli/run/pasted_command.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string Folder(const std::string& name) {
  const std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/", name);
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

TEST_CASE("this program goes by its name only where a shell finds it under that", "[cli][run]") {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const std::string here = Folder("here"), other = Folder("other");
  fs::create_symlink(self, here + "/tessera");
  // Another program of that name.
  std::ofstream(other + "/tessera") << "#!/bin/sh\n";
  fs::permissions(other + "/tessera", fs::perms::owner_all);

  setenv("PATH", (here + ":" + other).c_str(), 1);
  CHECK(ThisProgram("tessera") == "tessera");
  CHECK(ThisProgram(here + "/tessera") == "tessera");
  setenv("PATH", (other + ":" + here).c_str(), 1);
  CHECK(ThisProgram(here + "/tessera") == here + "/tessera");
  setenv("PATH", "", 1);
  CHECK(ThisProgram(here + "/tessera") == here + "/tessera");
  // It was found on a PATH that is no more.
  CHECK(ThisProgram("tessera") == self);
  // From any folder, and as one word.
  fs::current_path(here);
  CHECK(ThisProgram("./tessera") == here + "/tessera");
  const std::string odd = Folder("it's odd");
  fs::create_symlink(self, odd + "/tessera");
  CHECK(ThisProgram(odd + "/tessera") ==
        absl::StrCat("'", getenv("TEST_TMPDIR"), "/it'\\''s odd/tessera'"));
}

TEST_CASE("a secured job's files are named where it has them", "[cli][run]") {
  CHECK(SecurityFlags({}).empty());
  SecurityFiles files;
  files.authority = "/etc/ca.pem";
  files.token_file = "/etc/my tokens";
  CHECK(SecurityFlags(files) == " --authority /etc/ca.pem --token-file '/etc/my tokens'");
  files.certificate = "/etc/host.pem";
  files.private_key = "/etc/host.key";
  CHECK(SecurityFlags(files) ==
        " --authority /etc/ca.pem --certificate /etc/host.pem --private-key /etc/host.key "
        "--token-file '/etc/my tokens'");
}

}  // namespace
}  // namespace tessera
