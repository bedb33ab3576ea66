#include "deploy/cli/plan/open_keys.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/config/job_reader.h"
#include "common/method/recipe.h"
#include "deploy/cli/plan/plan.h"
#include "worker/data/load_datasets.h"
#include "worker/worker_memory.h"

namespace tessera {
namespace {

constexpr char kJob[] = "deploy/jobs/digits.yaml";
constexpr JobOptions kNoFiles{/*check_files=*/false};
// 64 x 4096, 4096 x 4096, 4096 x 10: the halves of the two cuts are very different.
constexpr char kWide[] =
    "model.layers=[{linear: {units: 4096}}, relu, {linear: {units: 4096}}, relu, {linear: {units: "
    "10}}]";

struct Chosen {
  absl::StatusOr<std::string> said;
  std::vector<std::string> overrides;
  JobReading reading;
};

Chosen Choose(const std::string& keys, const std::vector<std::string>& more = {}) {
  SetLogLevel(LogLevel::kError);
  Chosen chosen;
  chosen.overrides = {kWide, "cluster.workers=3", "train.batch_size=4",
                      "method={layer_separation: {" + keys + "}}"};
  chosen.overrides.insert(chosen.overrides.end(), more.begin(), more.end());
  chosen.reading = ReadJobFile(kJob, chosen.overrides, MayBeOpen(kNoFiles));
  INFO(FormatJobErrors(chosen.reading.errors));
  REQUIRE(chosen.reading.ok());
  chosen.said = CloseOpenKeys(OneMachine(), kJob, kNoFiles, &chosen.overrides, &chosen.reading);
  return chosen;
}

int64_t WorkerBytes(const std::string& cut) {
  const JobReading reading = ReadJobFile(kJob,
                                         {kWide, "cluster.workers=3", "train.batch_size=4",
                                          "method={layer_separation: {cut: " + cut + "}}"},
                                         kNoFiles);
  REQUIRE(reading.ok());
  const Recipe recipe = *RecipeFor(reading.job);
  const ModelShape shape = *ExchangedShape(reading.job.model(), recipe);
  const Datasets data = *LoadDatasets(reading.job.data(), EndsOf(reading.job.model(), shape));
  return PlanWorkerMemory(reading.job, recipe, shape, data, std::numeric_limits<int64_t>::max())
      ->total();
}

std::string CutOf(const Chosen& chosen) {
  return chosen.reading.job.method().layer_separation().cut();
}

TEST_CASE("a job that leaves nothing open stays as it is", "[plan][open_keys]") {
  const Chosen chosen = Choose("cut: layers.2, linear_workers: 1");
  REQUIRE(chosen.said.ok());
  CHECK(*chosen.said == "");
  CHECK(chosen.overrides.size() == 4);
}

TEST_CASE("what is chosen is in the job, its overrides and the line", "[plan][open_keys]") {
  const Chosen chosen = Choose("cut: auto, linear_workers: auto");
  REQUIRE(chosen.said.ok());
  const std::string cut = CutOf(chosen);
  CHECK((cut == "layers.2" || cut == "layers.4"));
  CHECK(chosen.reading.job.method().layer_separation().linear_workers() == 1);
  CHECK(RecipeFor(chosen.reading.job)->open_keys.empty());
  const std::string key = "method.layer_separation.";
  REQUIRE(chosen.overrides.size() == 6);
  CHECK(chosen.overrides[4] == absl::StrCat(key, "cut=", cut));
  CHECK(chosen.overrides[5] == absl::StrCat(key, "linear_workers=1"));
  CHECK(absl::StrContains(*chosen.said, absl::StrCat(key, "cut=", cut, " and ")));
  // The processes of the job read the same one.
  CHECK(ReadJobFile(kJob, chosen.overrides, kNoFiles).ok());
}

TEST_CASE("workers' halves fit the limit on their memory", "[plan][open_keys]") {
  // One of the cuts leaves a half of 67 MB with its gradient and more, whichever is faster here.
  const int64_t first = WorkerBytes("layers.2"), second = WorkerBytes("layers.4");
  INFO(first << " and " << second);
  const std::string fast = CutOf(Choose("cut: auto"));
  const std::string small = first < second ? "layers.2" : "layers.4";
  const auto limit = [](int64_t bytes) { return absl::StrCat("cluster.memory_limit=", bytes); };
  CHECK(CutOf(Choose("cut: auto", {limit(4 * std::max(first, second))})) == fast);
  if (first != second) {
    const Chosen chosen = Choose("cut: auto", {limit(std::max(first, second) - 1)});
    REQUIRE(chosen.said.ok());
    CHECK(CutOf(chosen) == small);
  }
  const Chosen none = Choose("cut: auto", {limit(std::min(first, second) - 1)});
  CHECK(absl::IsInvalidArgument(none.said.status()));
  CHECK(absl::StrContains(none.said.status().message(),
                          "method.layer_separation.cut: got auto, and the workers of no way to cut "
                          "the model fit cluster.memory_limit"));
  CHECK(none.overrides.size() == 5);
}

TEST_CASE("without the data there is nothing to choose by", "[plan][open_keys]") {
  const Chosen chosen = Choose("cut: layers.2, linear_workers: auto", {"data.directory=/nowhere"});
  CHECK(absl::IsFailedPrecondition(chosen.said.status()));
  CHECK(absl::StrContains(chosen.said.status().message(),
                          "method.layer_separation.linear_workers: got auto, for which a step has "
                          "to be timed here: "));
}

}  // namespace
}  // namespace tessera
