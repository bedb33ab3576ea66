#include "common/config/job_output.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A folder with a job and all that it names.
struct Folder {
  Folder() : root(fs::path(getenv("TEST_TMPDIR")) / "job_output") {
    fs::remove_all(root);
    fs::create_directories(root / "kept/step-10");
    for (const char* name :
         {"job.yaml", "a.gz", "b.gz", "token", "notes.json", "kept/step-10/manifest.json",
          "kept/step-10/shard-0.safetensors", "kept/old.json"}) {
      std::ofstream(root / name) << name;
    }
    job.mutable_data()->set_directory(root);
    job.mutable_data()->mutable_train()->add_features("a.gz");
    job.mutable_data()->mutable_test()->add_features("b.gz");
    job.mutable_security()->set_token_file(root / "token");
  }

  std::string Check(const std::string& name) const {
    const absl::Status status = CheckJobOutput("--report", root / name, root / "job.yaml", job);
    CHECK((status.ok() || absl::IsInvalidArgument(status)));
    return std::string(status.message());
  }

  fs::path root;
  v1::Job job;
};

TEST_CASE("what a job is read from is never written, by whatever name", "[job_output]") {
  const Folder folder;
  fs::create_symlink(folder.root / "a.gz", folder.root / "link");
  for (const char* name : {"job.yaml", "a.gz", "b.gz", "token", "link", "kept/../job.yaml"}) {
    CAPTURE(name);
    CHECK_THAT(folder.Check(name),
               Catch::StartsWith("--report: \"" + (folder.root / name).string() +
                                 "\" would be written over \"") &&
                   Catch::EndsWith("\", which is read; name another file"));
  }
}

TEST_CASE("files that are nobody's input may be written", "[job_output]") {
  const Folder folder;
  CHECK(folder.Check("new.json").empty());
  CHECK(folder.Check("notes.json").empty());
  CHECK(CheckJobOutput("--report", "", folder.root / "job.yaml", folder.job).ok());
  CHECK_FALSE(folder.Check("none/new.json").empty());
}

// Somebody may wait for it to appear.
TEST_CASE("asking whether a file is an input does not make it, not even for a moment",
          "[job_output]") {
  const Folder folder;
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(folder.root, long_ago);
  CHECK(
      CheckIsNoJobInput("--address-file", folder.root / "new", folder.root / "job.yaml", folder.job)
          .ok());
  CHECK(fs::last_write_time(folder.root) == long_ago);
  CHECK_FALSE(CheckIsNoJobInput("--address-file", folder.root / "job.yaml",
                                folder.root / "job.yaml", folder.job)
                  .ok());
  // What has to be written is tried.
  CHECK(folder.Check("new").empty());
  CHECK(fs::last_write_time(folder.root) != long_ago);
}

TEST_CASE("a checkpoint's files are not written over", "[job_output]") {
  Folder folder;
  const std::string shard = "kept/step-10/shard-0.safetensors",
                    manifest = "kept/step-10/manifest.json";
  // Whose they are nobody has said.
  CHECK(folder.Check(shard).empty());
  SECTION("of the job's own folder") {
    folder.job.mutable_checkpoint()->set_directory(folder.root / "kept");
  }
  SECTION("of the folder that it goes on from") {
    folder.job.mutable_checkpoint()->set_restore(folder.root / "kept");
  }
  SECTION("of the one that it goes on from") {
    folder.job.mutable_checkpoint()->set_restore(folder.root / "kept/step-10");
  }
  CHECK(folder.Check(shard) == "--report: \"" + (folder.root / shard).string() +
                                   "\" is a file of a checkpoint; name another file");
  CHECK_FALSE(folder.Check(manifest).empty());
  // What lies beside them is somebody else's.
  CHECK(folder.Check("kept/old.json").empty());
  CHECK(folder.Check("kept/report.json").empty());
}

}  // namespace
}  // namespace tessera
