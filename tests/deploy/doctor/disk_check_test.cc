// What doctor says of the folders that servers write in.
#include "deploy/doctor/disk_check.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"

namespace tessera {
namespace {

using Catch::Contains;

std::string FolderOfTest() {
  const char* const root = std::getenv("TEST_TMPDIR");
  std::string path = absl::StrCat(root != nullptr ? root : "/tmp", "/disk-XXXXXX");
  REQUIRE(mkdtemp(path.data()) != nullptr);
  return path;
}

void Write(const std::string& folder, const std::string& name, size_t bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/" + name) << std::string(bytes, 'x');
}

Finding Only(const std::string& directory) {
  v1::Job job;
  job.mutable_checkpoint()->set_directory(directory);
  job.mutable_checkpoint()->set_keep(3);
  job.mutable_train()->mutable_optimizer()->mutable_sgd();
  ModelShape shape;
  shape.size = 100;
  const Findings findings = CheckDisk(job, Recipe(), shape);
  REQUIRE(findings.size() == 1);
  return findings[0];
}

}  // namespace

TEST_CASE("checkpoints that are there make room for new ones", "[doctor][disk]") {
  const std::string folder = FolderOfTest();
  CHECK(RoomWanted(folder + "/none", 1000, 3) == 4000);
  CHECK(RoomWanted(folder, 1000, 3) == 4000);
  Write(folder + "/" + StepFolderName(10), "shard", 600);
  Write(folder + "/" + StepFolderName(10), kManifestName, 400);
  CHECK(RoomWanted(folder, 1000, 3) == 3000);
  // Not the job's.
  Write(folder + "/other", "shard", 1000);
  Write(folder, "file", 1000);
  CHECK(RoomWanted(folder, 1000, 3) == 3000);
  Write(folder + "/" + StepFolderName(20), "shard", 1000);
  Write(folder + "/" + StepFolderName(30), "shard", 1000);
  CHECK(RoomWanted(folder, 1000, 3) == 1000);
  // The next one comes before one of those goes.
  Write(folder + "/" + StepFolderName(40), "shard", 1000);
  CHECK(RoomWanted(folder, 1000, 3) == 1000);
}

TEST_CASE("what to do about a folder is said by what is wrong with it", "[doctor][disk]") {
  const std::string folder = FolderOfTest();
  const Finding good = Only(folder + "/new");
  CHECK(good.kind == Finding::Kind::kGood);
  CHECK_THAT(good.what, Contains("checkpoints: ") && Contains(" left in "));
  CHECK_FALSE(std::filesystem::exists(folder + "/new"));
  Write(folder, "file", 1);
  const Finding file = Only(folder + "/file");
  CHECK(file.kind == Finding::Kind::kProblem);
  CHECK_THAT(file.what, Contains("cannot be written: Not a directory"));
  CHECK_THAT(file.advice, Contains("is no folder") && !Contains("right to write"));
}

}  // namespace tessera
