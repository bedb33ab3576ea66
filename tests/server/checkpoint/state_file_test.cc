#include "server/checkpoint/state_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tessera {
namespace {

std::string NewFolder() {
  const char* const root = getenv("TEST_TMPDIR");
  std::string name = std::string(root != nullptr ? root : "/tmp") + "/state_file_testXXXXXX";
  REQUIRE(mkdtemp(name.data()) != nullptr);
  return name;
}

struct Kept {
  Kept() {
    auto opened = StateFile::Open(folder);
    REQUIRE(opened.ok());
    file = *std::move(opened);
  }

  void Write(uint64_t changes) {
    v1::CoordinatorState state;
    state.set_changes(changes);
    REQUIRE(file->Write(state).ok());
  }
  std::optional<uint64_t> Read() const {
    const auto state = file->Read();
    REQUIRE(state.ok());
    if (!state->has_value()) return std::nullopt;
    return (*state)->changes();
  }

  const std::string above = NewFolder();
  const std::string folder = above + "/coordinator";
  std::unique_ptr<StateFile> file;
};

TEST_CASE("what was written last is read", "[state]") {
  Kept kept;
  CHECK(kept.Read() == std::nullopt);
  kept.Write(1);
  kept.Write(2);
  CHECK(kept.Read() == 2);
  CHECK(kept.file->Describe() == kept.folder);
  CHECK(StateFile::Open(kept.folder).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a folder that is gone ends nothing, and is written again once it is back", "[state]") {
  Kept kept;
  kept.Write(1);
  const std::string elsewhere = kept.above + "/elsewhere";
  REQUIRE(rename(kept.folder.c_str(), elsewhere.c_str()) == 0);
  kept.Write(2);
  kept.Write(3);
  CHECK(kept.file->Describe().rfind("nowhere: ", 0) == 0);
  REQUIRE(rename(elsewhere.c_str(), kept.folder.c_str()) == 0);
  kept.Write(4);
  CHECK(kept.file->Describe() == kept.folder);
  CHECK(kept.Read() == 4);
}

TEST_CASE("what cannot be written leaves nothing older behind", "[state]") {
  Kept kept;
  kept.Write(1);
  // Its place is taken by a folder.
  const std::string part = kept.folder + "/state.part";
  REQUIRE(system(("mkdir -p " + part + "/x").c_str()) == 0);
  kept.Write(2);
  CHECK(kept.Read() == std::nullopt);
  REQUIRE(system(("rm -r " + part).c_str()) == 0);
  kept.Write(3);
  CHECK(kept.Read() == 3);
}

TEST_CASE("a link in the folder's names leads nobody to write elsewhere", "[state][strangers]") {
  const std::string folder = NewFolder();
  const std::string others = folder + "/others";
  std::ofstream(others) << "text";
  REQUIRE(symlink(others.c_str(), (folder + "/state.part").c_str()) == 0);
  {
    auto file = *StateFile::Open(folder);
    v1::CoordinatorState state;
    state.set_changes(1);
    REQUIRE(file->Write(state).ok());
    REQUIRE((*file->Read())->changes() == 1);
  }
  std::string text;
  std::getline(std::ifstream(others), text);
  CHECK(text == "text");
  REQUIRE(unlink((folder + "/lock").c_str()) == 0);
  REQUIRE(symlink((folder + "/made").c_str(), (folder + "/lock").c_str()) == 0);
  CHECK_FALSE(StateFile::Open(folder).ok());
  CHECK(access((folder + "/made").c_str(), F_OK) != 0);
}

TEST_CASE("a state that could not be read again is not written", "[state]") {
  const std::string folder = NewFolder() + "/coordinator";
  auto file = *StateFile::Open(folder, /*bytes_max=*/1000);
  v1::CoordinatorState state;
  state.set_changes(1);
  REQUIRE(file->Write(state).ok());
  REQUIRE((*file->Read())->changes() == 1);
  state.set_failure(std::string(1000, 'x'));
  CHECK(file->Write(state).ok());
  CHECK(file->Describe() ==
        "nowhere: \"" + folder + "/state\": state is too large, want at most 1000 bytes");
  // Nobody goes on from the one before.
  CHECK_FALSE(file->Read()->has_value());
  state.set_failure(std::string(900, 'x'));
  CHECK(file->Write(state).ok());
  CHECK(file->Describe() == folder);
  CHECK((*file->Read())->failure().size() == 900);
}

}  // namespace
}  // namespace tessera
