#include "common/method/train_rows.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera {
namespace {

v1::Job JobOf(const std::string& partition, int64_t batch_size) {
  v1::Job job;
  job.mutable_data()->set_partition(partition);
  job.mutable_train()->set_batch_size(batch_size);
  job.mutable_train()->set_epochs(2);
  return job;
}

TEST_CASE("steps of an epoch are the whole ones", "[train_rows]") {
  CHECK(*EpochSteps(60000, 4, 128) == 117);
  CHECK(*EpochSteps(512, 4, 128) == 1);
  CHECK(EpochSteps(511, 4, 128).status().message() ==
        "training rows are 511, want at least 4 workers x 128");
  CHECK(EpochSteps(0, 1, 1).status().message() ==
        "training rows are 0, want at least 1 worker x 1");
  // A product of workers and batch beyond 64 bits.
  CHECK_FALSE(EpochSteps(1000, INT64_MAX, INT64_MAX).ok());
}

TEST_CASE("workers share the rows of an epoch, whoever reads which, unless the rows are their own",
          "[train_rows]") {
  for (const char* partition : {"global", "shard", "full"}) {
    CAPTURE(partition);
    CHECK(CheckTrainRows(JobOf(partition, 10), 3, 30).ok());
    CHECK(absl::IsInvalidArgument(CheckTrainRows(JobOf(partition, 10), 3, 29)));
  }
  CHECK(CheckTrainRows(JobOf("local", 10), 3, 10).ok());
  CHECK(CheckTrainRows(JobOf("local", 10), 3, 9).message() ==
        "training rows are 27, want at least 3 workers x 10");
}

TEST_CASE("workers with linear layers need no rows", "[train_rows]") {
  v1::Job job = JobOf("global", 10);
  job.mutable_method()->mutable_layer_separation()->set_linear_workers(2);
  CHECK(CheckTrainRows(job, 5, 30).ok());
  CHECK_FALSE(CheckTrainRows(job, 5, 29).ok());
  // No machines for it, which is for others to say.
  CHECK(CheckTrainRows(job, 2, 10).ok());
}

TEST_CASE("a job that ends in an epoch that rank 0 has begun alone needs the rows of one worker",
          "[train_rows]") {
  v1::Job job = JobOf("global", 10);
  // One epoch of two steps, or two of them.
  const int64_t warmup = GENERATE(1, 2, 3);
  const int64_t alone = warmup == 3 ? 2 : 1;
  job.mutable_method()->mutable_decentralized()->set_warmup_steps(warmup);
  job.mutable_train()->set_steps(2 * alone);
  CHECK(CheckTrainRows(job, 3, 29).ok());
  job.mutable_train()->set_steps(2 * alone + 1);
  CHECK_FALSE(CheckTrainRows(job, 3, 29).ok());
  CHECK(CheckTrainRows(job, 3, 30).ok());
  job.mutable_train()->set_epochs(alone);
  CHECK(CheckTrainRows(job, 3, 29).ok());
  CHECK_FALSE(CheckTrainRows(job, 3, 9).ok());
  job.mutable_train()->set_epochs(alone + 1);
  CHECK_FALSE(CheckTrainRows(job, 3, 29).ok());
}

TEST_CASE("a job has the steps of its epochs, which are longer while rank 0 warms up",
          "[train_rows]") {
  v1::Job job = JobOf("global", 10);
  job.mutable_train()->set_epochs(3);
  job.mutable_cluster()->set_workers(2);
  CHECK(*JobSteps(job, 145) == 3 * 7);
  job.mutable_method()->mutable_decentralized()->set_warmup_steps(15);
  CHECK(*JobSteps(job, 145) == 2 * 14 + 7);
  job.mutable_method()->mutable_decentralized()->set_warmup_steps(1000);
  CHECK(*JobSteps(job, 145) == 3 * 14);
  CHECK_FALSE(JobSteps(job, 9).ok());
  job.mutable_train()->set_steps(5);
  CHECK(*JobSteps(job, 145) == 5);
}

}  // namespace
}  // namespace tessera
