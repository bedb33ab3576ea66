// The sums of docs/operating/resources.md, held to jobs.
#include "server/server_memory.h"

#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/job_reader.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// 2000 x 3000 weights and 3000 x 10: n is 23 MiB.
constexpr char kJob[] = R"(
name: memory
data:
  format: csv
  train: {features: [train.csv]}
  test: {features: [test.csv]}
model:
  input: [2000]
  layers:
    - linear: {units: 3000, bias: false}
    - relu
    - linear: {units: 10, bias: false}
train: {batch_size: 8, steps: 1000, optimizer: {sgd: {learning_rate: 0.1}}}
)";
constexpr int64_t kBytes = 4 * (2000 * 3000 + 3000 * 10);

constexpr char kDataParallel[] = "method: {data_parallel: {}}";
constexpr char kIst[] = "method: {ist: {}}";

v1::Job JobOf(const std::string& method, int servers, int64_t limit,
              std::vector<std::string> overrides = {}) {
  overrides.push_back(absl::StrCat("cluster.servers=", servers));
  overrides.push_back("cluster.workers=4");
  overrides.push_back(absl::StrCat("cluster.memory_limit=", limit));
  JobReading reading =
      ReadJob({absl::StrCat(kJob, method, "\n"), "job.yaml", "", std::move(overrides)}, {false});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  return std::move(reading.job);
}

ServerMemory MemoryOf(const v1::Job& job, int rank = 0) {
  const Recipe recipe = *RecipeFor(job);
  const ModelShape shape = *ExchangedShape(job.model(), recipe);
  return PlanServerMemory(job, recipe, shape, rank, job.cluster().memory_limit());
}

bool Fits(const v1::Job& job) { return MemoryOf(job).total() <= job.cluster().memory_limit(); }

// The least limit that is not refused, to 64 KiB.
int64_t LeastLimit(const std::string& method, int servers,
                   const std::vector<std::string>& overrides = {}) {
  int64_t refused = 0, taken = 4096 * kMiB;
  REQUIRE(Fits(JobOf(method, servers, taken, overrides)));
  while (taken - refused > (64 << 10)) {
    const int64_t middle = (refused + taken) / 2;
    (Fits(JobOf(method, servers, middle, overrides)) ? taken : refused) = middle;
  }
  return taken;
}

TEST_CASE("a server takes what the page about operating says", "[server][memory]") {
  const int servers = GENERATE(1, 2, 4);
  const int64_t slice = kBytes / servers;
  const int64_t dense = LeastLimit(kDataParallel, servers);
  CHECK(dense <= 5 * slice + 64 * kMiB);
  CHECK(LeastLimit(kIst, servers) <= 3 * slice + 64 * kMiB);
  CHECK(LeastLimit(kIst, servers) < dense);
  // Momentum has one state.
  const int64_t momentum = LeastLimit(kDataParallel, servers, {"train.optimizer.sgd.momentum=0.9"});
  CHECK(momentum - dense == Approx(slice).margin(kMiB));
}

TEST_CASE("whoever may copy a replica, follow another shard or save has room for it",
          "[server][memory]") {
  const int64_t dense = LeastLimit(kDataParallel, 4);
  const int64_t slice = kBytes / 4;
  // Parameters, an update, the message that brings it and its pieces; and the sum of an update that waits.
  const int64_t follows = LeastLimit(kDataParallel, 4, {"cluster.replicas=1"});
  CHECK(follows - dense == Approx(4 * slice + slice / 8).margin(kMiB));
  const std::vector<std::string> saves = {"checkpoint.directory=/ckpt",
                                          "checkpoint.every_steps=10"};
  CHECK(LeastLimit(kDataParallel, 4, saves) - dense == Approx(slice).margin(kMiB));
  // Subnets have no states there, whatever their optimizer; folds go on while the file is written.
  CHECK(LeastLimit(kIst, 4, saves) - LeastLimit(kIst, 4) == Approx(slice).margin(kMiB));
  // Every replica is the whole model.
  const int64_t replica = LeastLimit("method: {decentralized: {}}", 4);
  CHECK(replica > LeastLimit(kDataParallel, 1) + kBytes);
}

TEST_CASE("a limit that leaves less room makes staging smaller before it is refused",
          "[server][memory]") {
  const ServerMemory all = MemoryOf(JobOf(kDataParallel, 1, 1024 * kMiB));
  const int64_t least = LeastLimit(kDataParallel, 1);
  CHECK(least < all.total());
  const ServerMemory tight = MemoryOf(JobOf(kDataParallel, 1, least));
  CHECK(tight.total() <= least);
  CHECK(tight.shard.limits.staging_bytes < all.shard.limits.staging_bytes);
  CHECK(tight.program == all.program);
}

TEST_CASE("windows follow the network where the limit has room for all that they may let come",
          "[server][memory]") {
  const auto with = [](int64_t limit, int servers = 1,
                       const std::vector<std::string>& overrides = {}) {
    return MemoryOf(JobOf(kDataParallel, servers, limit, overrides));
  };
  const ServerMemory ample = with(1024 * kMiB);
  // Of each of four workers a push at most.
  CHECK(ample.windows.kind() == Windows::kFollowing);
  CHECK(ample.windows.bytes() == 4 * (kBytes * 9 / 8));
  CHECK(ample.total() <= 1024 * kMiB);
  CHECK(ample.Describe().find(absl::StrCat(" + windows ", ample.windows.bytes())) !=
        std::string::npos);
  const int64_t rest = ample.total() - ample.windows.bytes();
  CHECK(with(ample.total()).windows.bytes() == ample.windows.bytes());
  // A byte less, and they stay narrow; all else is as it was.
  const ServerMemory narrow = with(ample.total() - 1);
  CHECK(narrow.windows.kind() == Windows::kNarrow);
  CHECK(narrow.windows.following_bytes() == ample.windows.bytes());
  CHECK(narrow.total() == rest);
  CHECK(narrow.Describe().find("windows") == std::string::npos);
  // Without a limit nothing is planned for them, as nothing holds them back.
  CHECK(PlanServerMemory(JobOf(kDataParallel, 1, 0), *RecipeFor(JobOf(kDataParallel, 1, 0)),
                         *ExchangedShape(JobOf(kDataParallel, 1, 0).model(),
                                         *RecipeFor(JobOf(kDataParallel, 1, 0))),
                         0)
            .windows.bytes() == 0);
  // Where a push is larger than the widest window, that is what they take.
  const std::vector<std::string> wide = {"model.layers=[{linear: {units: 30000}}]"};
  const ServerMemory large = with(8192 * kMiB, 1, wide);
  CHECK(large.windows.bytes() == 4 * (kWindowBytesMax * 9 / 8));
  CHECK(with(large.total(), 1, wide).windows.kind() == Windows::kFollowing);
  CHECK(with(large.total() - 1, 1, wide).windows.kind() == Windows::kNarrow);
  // A standby's leader has one, too.
  CHECK(with(1024 * kMiB, 4, {"cluster.replicas=1"}).windows.bytes() >
        with(1024 * kMiB, 4).windows.bytes());
}

TEST_CASE("the sum is told in its parts", "[server][memory]") {
  const ServerMemory memory = MemoryOf(JobOf(kDataParallel, 2, 40 * kMiB), 1);
  CHECK(memory.total() > 40 * kMiB);
  const std::string parts = memory.Describe();
  for (const char* part :
       {"slice 12060000 + pending 12060000 + optimizer state 0 + next push ",
        " + other pushes 0 + copies for readers ", " + checkpoints 0 + program and connections "}) {
    CAPTURE(parts, part);
    CHECK(parts.find(part) != std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
