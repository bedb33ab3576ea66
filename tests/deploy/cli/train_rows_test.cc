// Commands that say of a job, before it runs, whether there are rows enough for it say what its coordinator says.
#include <catch2/catch.hpp>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/config/job_reader.h"
#include "common/method/recipe.h"
#include "common/method/train_rows.h"
#include "deploy/cli/plan/plan_command.h"
#include "deploy/cli/simulate_command.h"
#include "deploy/doctor/data_check.h"
#include "deploy/simulate/simulation.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 1347;

struct Case {
  const char* job;
  int workers;
  std::vector<std::string> overrides;
  // The largest for which there are rows.
  int64_t batch_size;
};

const Case kCases[] = {
    {"digits", 3, {"data.partition=global"}, kRows / 3},
    {"digits", 3, {"data.partition=shard"}, kRows / 3},
    {"digits", 3, {"data.partition=full"}, kRows / 3},
    {"digits", 3, {"data.partition=local"}, kRows},
    {"digits", 1, {"data.partition=full"}, kRows},
    {"digits_async", 4, {"data.partition=full"}, kRows / 4},
    {"digits_ist", 4, {"data.partition=full"}, kRows / 4},
    {"digits_ist", 4, {"method={ensemble: {}}"}, kRows / 4},
    {"digits_layers", 5, {"method.layer_separation.linear_workers=2"}, kRows / 3},
};

std::vector<std::string> OverridesOf(const Case& asked, int64_t batch_size) {
  std::vector<std::string> overrides = {"train.epochs=2",
                                        absl::StrCat("train.batch_size=", batch_size)};
  overrides.insert(overrides.end(), asked.overrides.begin(), asked.overrides.end());
  return overrides;
}

v1::Job Read(const Case& asked, std::vector<std::string> overrides) {
  overrides.push_back(absl::StrCat("cluster.workers=", asked.workers));
  const JobReading reading =
      ReadJobFile(absl::StrCat("deploy/jobs/", asked.job, ".yaml"), overrides, JobOptions{});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  return reading.job;
}

// With the real coordinator.
absl::Status Trained(const v1::Job& job) {
  const ModelShape shape = *ShapeOf(job.model());
  const Datasets data = *LoadDatasets(job.data(), EndsOf(job.model(), shape));
  REQUIRE(data.train.rows() == kRows);
  SimulationOptions options;
  options.step_time = 1'000'000;
  options.stub_gradients = true;
  const auto simulation = Simulation::Create(job, options, &data);
  CAPTURE(simulation.status().message());
  REQUIRE(simulation.ok());
  while (!(*simulation)->Run(100000)) {
  }
  return (*simulation)->outcome();
}

int Simulated(const Case& asked, std::vector<std::string> overrides) {
  SimulateOptions options;
  options.job_path = absl::StrCat("deploy/jobs/", asked.job, ".yaml");
  options.overrides = std::move(overrides);
  options.workers = asked.workers;
  options.step_time = "1ms";
  options.stub_gradients = true;
  options.quiet = true;
  return SimulateJob(options);
}

int Planned(const Case& asked, std::vector<std::string> overrides) {
  PlanOptions options;
  options.job_path = absl::StrCat("deploy/jobs/", asked.job, ".yaml");
  options.overrides = std::move(overrides);
  options.nodes = asked.workers;
  options.bandwidth = "1Gbit";
  return PlanJob(options);
}

Finding::Kind Examined(const v1::Job& job) {
  const DataFindings data = CheckData(job, *ExchangedShape(job.model(), *RecipeFor(job)));
  REQUIRE(data.findings.size() == 1);
  REQUIRE(data.data != nullptr);
  CHECK(data.data->train.rows() == kRows);
  return data.findings[0].kind;
}

TEST_CASE("plan, simulate and doctor want the rows that the coordinator wants", "[train_rows]") {
  SetLogLevel(LogLevel::kError);
  const Case asked = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  for (const bool enough : {true, false}) {
    CAPTURE(asked.job, asked.workers, asked.overrides, enough);
    const std::vector<std::string> overrides =
        OverridesOf(asked, asked.batch_size + (enough ? 0 : 1));
    const v1::Job job = Read(asked, overrides);
    const absl::Status outcome = Trained(job);
    CAPTURE(outcome.message());
    CHECK(outcome.ok() == enough);
    if (!enough) CHECK(absl::StrContains(outcome.message(), "training rows are"));
    CHECK(CheckTrainRows(job, asked.workers, kRows).ok() == enough);
    CHECK(Simulated(asked, overrides) == (enough ? 0 : 2));
    CHECK(Planned(asked, overrides) == (enough ? 0 : 2));
    // The others' own rows are not here.
    const Finding::Kind bad =
        job.data().partition() == "local" ? Finding::Kind::kNote : Finding::Kind::kProblem;
    CHECK(Examined(job) == (enough ? Finding::Kind::kGood : bad));
  }
}

TEST_CASE("a lone worker has all local rows that there are", "[train_rows]") {
  const Case alone = {"digits", 1, {"data.partition=local"}, kRows};
  CHECK(Examined(Read(alone, OverridesOf(alone, kRows))) == Finding::Kind::kGood);
  CHECK(Examined(Read(alone, OverridesOf(alone, kRows + 1))) == Finding::Kind::kProblem);
}

}  // namespace
}  // namespace tessera
