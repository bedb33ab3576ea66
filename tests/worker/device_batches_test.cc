// What batches take of a device beside the one place that the replica's sum has.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/job_reader.h"
#include "worker/data/load_datasets.h"
#include "worker/worker_memory.h"

namespace tessera {
namespace {

// 64 inputs and a label.
constexpr int64_t kRowBytes = 65 * 4;

int64_t BytesOf(const char* name, const std::vector<std::string>& overrides) {
  const JobReading reading =
      ReadJobFile(absl::StrCat("deploy/jobs/", name, ".yaml"), overrides, JobOptions{});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  const v1::Job& job = reading.job;
  const auto data = LoadDatasets(job.data(), EndsOf(job.model(), *ShapeOf(job.model())));
  REQUIRE(data.ok());
  return *DeviceBatchBytes(job, *RecipeFor(job), *data);
}

TEST_CASE("a whole replica has three places for batches, and two are in no other sum",
          "[device][memory]") {
  CHECK(BytesOf("digits", {"train.batch_size=200"}) == 2 * 200 * kRowBytes);
  // Evaluations take 128 rows at once.
  CHECK(BytesOf("digits", {"train.batch_size=32"}) == 2 * 128 * kRowBytes);
  // Pieces are for a GPU that has no room for more.
  CHECK(BytesOf("digits", {"train.batch_size=200", "train.micro_batch=24"}) == 2 * 24 * kRowBytes);
}

TEST_CASE("whoever evaluates in a network of its own has three more", "[device][memory]") {
  CHECK(BytesOf("digits_ist", {"train.batch_size=48"}) == (2 * 128 + 3 * 48) * kRowBytes);
  CHECK(BytesOf("digits_ist", {"train.batch_size=200", "train.micro_batch=24"}) ==
        (2 * 24 + 3 * 24) * kRowBytes);
  // 16 x 4 x 4 values cross from half to half, with a label.
  CHECK(BytesOf("digits_layers", {"train.batch_size=48"}) ==
        2 * 128 * kRowBytes + 3 * 48 * (256 + 1) * 4);
}

}  // namespace
}  // namespace tessera
