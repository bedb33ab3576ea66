// What doctor says of the checkpoint that a job is to go on from.
#include "deploy/doctor/checkpoint_check.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "server/control/saved_job.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

using Catch::Contains;

// Of a job whose epochs have 20 steps of two workers, saved at step 400 or in the midst of an epoch.
struct Saved {
  explicit Saved(uint64_t steps_of_epoch = 20) {
    Manifest manifest = ManifestOf(1);
    SavedJob job;
    const uint64_t epoch = (manifest.step - 1) / steps_of_epoch;
    job.cuts = {
        {epoch, epoch * steps_of_epoch, steps_of_epoch, steps_of_epoch * 2 * 10, {0, 1}, {}}};
    manifest.coordinator = FormatSavedJob(job);
    REQUIRE(SaveShards(folder, &manifest).ok());
    WriteManifest(folder, manifest);
    facts.model_manifest = std::make_shared<const Manifest>(manifest);
    facts.workers = 2;
    facts.batch_size = 10;
  }

  Finding Only() const {
    v1::Checkpoint keys;
    keys.set_restore(folder);
    const Findings findings = CheckCheckpoints(keys, facts, /*runs=*/false);
    REQUIRE(findings.size() == 1);
    return findings[0];
  }

  const std::string folder = EmptyFolder();
  JobFacts facts;
};

TEST_CASE("a checkpoint of the job's last epoch leaves nothing to train", "[doctor][checkpoint]") {
  Saved saved;
  saved.facts.epochs = 21;
  CHECK(saved.Only().kind == Finding::Kind::kGood);
  CHECK(saved.Only().what == "checkpoint.restore: the job goes on from step 400");
  for (const int64_t epochs : {20, 3}) {
    saved.facts.epochs = epochs;
    const Finding finding = saved.Only();
    CHECK(finding.kind == Finding::Kind::kNote);
    CHECK_THAT(finding.what, Contains("it is of step 400, and train.epochs is ") &&
                                 Contains(": nothing is left to train"));
    CHECK(finding.advice == "raise train.epochs");
  }
}

TEST_CASE("what lies on all servers' disks together is not judged by one of them",
          "[doctor][checkpoint]") {
  const Saved saved;
  const std::string directory = EmptyFolder();
  std::filesystem::rename(saved.folder,
                          absl::StrCat(directory, "/", StepFolderName(ManifestOf(1).step)));
  v1::Checkpoint keys;
  keys.set_store("own_disks");
  keys.set_directory(directory);
  keys.set_restore(directory);
  const Findings findings = CheckCheckpoints(keys, saved.facts, /*runs=*/false);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == Finding::Kind::kNote);
  CHECK_THAT(findings[0].what, Contains("on all servers' disks together"));
  // A job that begins anew is not to begin among another one's.
  keys.clear_restore();
  const Findings used = CheckCheckpoints(keys, saved.facts, /*runs=*/false);
  REQUIRE(used.size() == 1);
  CHECK(used[0].kind == Finding::Kind::kProblem);
}

TEST_CASE("a checkpoint of the job's last step leaves nothing to train", "[doctor][checkpoint]") {
  Saved saved;
  saved.facts.steps = 401;
  CHECK(saved.Only().kind == Finding::Kind::kGood);
  saved.facts.steps = 400;
  CHECK(saved.Only().kind == Finding::Kind::kNote);
  CHECK(saved.Only().advice == "raise train.steps");
}

TEST_CASE("another batch size in the midst of an epoch is a problem", "[doctor][checkpoint]") {
  Saved midst(/*steps_of_epoch=*/21);
  midst.facts.epochs = 100;
  CHECK(midst.Only().kind == Finding::Kind::kGood);
  midst.facts.batch_size = 5;
  const Finding finding = midst.Only();
  CHECK(finding.kind == Finding::Kind::kProblem);
  CHECK_THAT(finding.what,
             Contains("train.batch_size: 5 makes 42 steps an epoch, want 21 as before"));
  // At an epoch's end it may change.
  Saved end;
  end.facts.epochs = 100;
  end.facts.batch_size = 5;
  CHECK(end.Only().kind == Finding::Kind::kGood);
}

TEST_CASE("a checkpoint of another model is a problem", "[doctor][checkpoint]") {
  Saved saved;
  Manifest other = *saved.facts.model_manifest;
  other.layout_hash += 1;
  other.parameters[0].rows += 1;
  saved.facts.model_manifest = std::make_shared<const Manifest>(other);
  const Finding finding = saved.Only();
  CHECK(finding.kind == Finding::Kind::kProblem);
  CHECK_THAT(finding.advice, Contains("name another checkpoint"));
}

}  // namespace
}  // namespace tessera
