// What a worker's sum has for checkpoints, and for windows that follow the network.
#include "worker/worker_memory.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/job_reader.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

using Catch::Contains;

struct Planned {
  WorkerMemory memory;
  // Of the model.
  int64_t bytes = 0;
};

Planned Plan(const char* name, const std::vector<std::string>& overrides,
             int64_t bytes_max = std::numeric_limits<int64_t>::max()) {
  const JobReading reading =
      ReadJobFile(absl::StrCat("deploy/jobs/", name, ".yaml"), overrides, JobOptions{});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  const v1::Job& job = reading.job;
  const Recipe recipe = *RecipeFor(job);
  const ModelShape model = *ShapeOf(job.model());
  const auto data = LoadDatasets(job.data(), EndsOf(job.model(), model));
  REQUIRE(data.ok());
  const auto memory =
      PlanWorkerMemory(job, recipe, *ExchangedShape(job.model(), recipe), *data, bytes_max);
  REQUIRE(memory.ok());
  return {*memory, model.size * static_cast<int64_t>(sizeof(float))};
}

TEST_CASE("a worker that saves has room for a copy of what only it has", "[worker][memory]") {
  struct Kind {
    const char* job;
    std::vector<std::string> overrides;
    int arrays;
  };
  const std::vector<Kind> kinds = {
      {"digits", {}, 0},
      {"digits_quant", {}, 1},      // what is held back
      {"digits_local_sgd", {}, 1},  // momentum
      {"digits_local_sgd", {"codec.push=int8", "codec.error_feedback=true"}, 2},
      {"digits_local_sgd", {"method={local_sgd: {average_state: true}}"}, 0},
      {"digits_slim_dp", {}, 3},  // momentum, the replica, what is held back
      {"digits_slim_dp", {"codec.error_feedback=false"}, 2},
      {"digits_ist", {"train.optimizer.sgd.momentum=0.5"}, 0},
      {"digits_ist_tail", {"train.optimizer.sgd.momentum=0.5"}, 1},
  };
  for (const Kind& kind : kinds) {
    CAPTURE(kind.job, kind.overrides);
    std::vector<std::string> saves = kind.overrides;
    saves.push_back("checkpoint.directory=/ckpt");
    const Planned with = Plan(kind.job, saves), without = Plan(kind.job, kind.overrides);
    const int64_t copied = kind.arrays * with.bytes;
    CHECK(without.memory.checkpoint == 0);
    CHECK(with.memory.total() - without.memory.total() == copied);
    CHECK_THAT(with.memory.Describe(),
               Contains(absl::StrCat(" + checkpoints ", copied, " + program ")));
  }
}

TEST_CASE("a worker's windows follow the network where its limit has room for them",
          "[worker][memory]") {
  const std::vector<std::string> wide = {
      "model.layers=[{linear: {units: 4096}}, relu, {linear: {units: 4096}}, {linear: {units: "
      "10}}]",
      "cluster.servers=2"};
  // Half of the model comes from each server.
  const int64_t ample = int64_t{4} << 30;
  const WorkerMemory follows = Plan("digits", wide, ample).memory;
  CHECK(follows.windows.kind() == Windows::kFollowing);
  const int64_t bytes = follows.windows.bytes();
  CHECK(bytes == 2 * (kWindowBytesMax * 9 / 8));
  CHECK_THAT(follows.Describe(), Contains(absl::StrCat(" + windows ", bytes)));
  CHECK(Plan("digits", wide, follows.total()).memory.windows.bytes() == bytes);
  const WorkerMemory narrow = Plan("digits", wide, follows.total() - 1).memory;
  CHECK(narrow.windows.kind() == Windows::kNarrow);
  CHECK(narrow.total() == follows.total() - bytes);
  CHECK_THAT(narrow.Describe(), !Contains("windows"));
  // Without a limit nothing holds them back.
  CHECK(Plan("digits", wide).memory.windows.bytes() == 0);
  // Where workers call each other no sum knows how many.
  const WorkerMemory split = Plan("digits_layers", {}, ample).memory;
  CHECK(split.windows.following_bytes() == 0);
  CHECK(split.windows.kind() == Windows::kNarrow);
}

}  // namespace
}  // namespace tessera
