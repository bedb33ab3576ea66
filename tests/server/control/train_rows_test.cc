// The coordinator begins the epochs of a job exactly where common/method/train_rows.h says that there are rows enough.
#include <catch2/catch.hpp>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/method/train_rows.h"
#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

constexpr int kBatchSize = 10;

struct Kind {
  const char* partition;
  int linear_workers = 0;
  int warmup_steps = 0;
};

const Kind kKinds[] = {{"global"},       {"shard"},       {"full"},
                       {"local"},        {"global", 1},   {"local", 2},
                       {"global", 0, 1}, {"local", 0, 1}, {"full", 0, 3}};

JobFacts FactsOf(const Kind& kind, int workers, int epochs) {
  const bool replicated = kind.warmup_steps > 0;
  JobFacts facts = ControlFixture::Facts(replicated ? workers : 1, workers);
  facts.batch_size = kBatchSize;
  facts.epochs = epochs;
  facts.rows_are_local = std::string(kind.partition) == "local";
  if (kind.linear_workers > 0) facts.front_workers = workers - kind.linear_workers;
  facts.replicated = replicated;
  facts.warmup_steps = static_cast<uint64_t>(kind.warmup_steps);
  facts.synchronous = !replicated;
  return facts;
}

v1::Job JobOf(const Kind& kind, int epochs) {
  v1::Job job;
  job.mutable_data()->set_partition(kind.partition);
  job.mutable_train()->set_batch_size(kBatchSize);
  job.mutable_train()->set_epochs(epochs);
  if (kind.linear_workers > 0) {
    job.mutable_method()->mutable_layer_separation()->set_linear_workers(kind.linear_workers);
  }
  if (kind.warmup_steps > 0) {
    job.mutable_method()->mutable_decentralized()->set_warmup_steps(kind.warmup_steps);
  }
  return job;
}

// Worker 0 goes through all epochs of the job, and the others come as soon as they may.
absl::Status Epochs(const Kind& kind, int workers, int epochs, int64_t rows) {
  ControlFixture control(FactsOf(kind, workers, epochs));
  for (size_t i = 0; i < control.servers.size(); ++i) REQUIRE(control.Attach(i).ok());
  for (int rank = 0; rank < workers; ++rank) {
    v1::JoinRequest wish = ControlFixture::Wish(rank);
    wish.set_rows(rows);
    wish.set_address(absl::StrCat("host-", rank, ":1"));
    REQUIRE(control.Join(wish).ok());
  }
  control.StepAll();
  uint64_t step = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    v1::BeginEpochRequest request;
    request.set_member(1);
    request.set_epoch(epoch);
    request.set_step(step);
    const auto cut = control.coordinator->BeginEpoch(request, control.now);
    if (!cut.ok()) return cut.status();
    step += cut->steps();
    REQUIRE(control.Renew(1, step, step).ok());
    control.StepAll();
  }
  return absl::OkStatus();
}

TEST_CASE("the coordinator wants the rows that a job is said to need", "[control][epochs]") {
  SetLogLevel(LogLevel::kError);
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  const int workers = GENERATE(3, 4, 7);
  const int epochs = GENERATE(1, 2, 3);
  for (const int with_data : {1, workers - 2, workers - 1, workers}) {
    for (const int64_t rows :
         {with_data * kBatchSize - 1, with_data * kBatchSize, with_data * kBatchSize + 1}) {
      CAPTURE(kind.partition, kind.linear_workers, kind.warmup_steps, workers, epochs, rows);
      const absl::Status said = CheckTrainRows(JobOf(kind, epochs), workers, rows);
      const absl::Status found = Epochs(kind, workers, epochs, rows);
      CAPTURE(found.message());
      CHECK(said.ok() == found.ok());
      // A warm-up that has too few rows for itself lacks those of all workers as well.
      if (!said.ok() && kind.warmup_steps == 0) {
        CHECK(absl::StrContains(found.message(), said.message()));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
