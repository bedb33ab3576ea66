#include "deploy/cli/report_status.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <optional>
#include <string>

#include "deploy/cli/progress.h"
#include "server/control/report.h"

namespace tessera {
namespace {

v1::JobStatus Ended() {
  v1::JobStatus status;
  status.set_state("done");
  status.set_job("digits");
  status.set_method("async_sgd");
  status.set_method_description(
      "every worker's gradient is applied as it comes, whatever the others do");
  status.set_train_seconds(2.5);
  status.set_wall_seconds(3.5);
  status.set_step(400);
  status.set_generation(3);
  status.set_members_lost(1);
  status.set_examples(24690);
  status.mutable_unreported()->set_push_payload_bytes(1 << 10);
  for (int i = 0; i < 2; ++i) {
    v1::HistoryEntry& entry = *status.add_history();
    entry.set_epoch(5 * (i + 1));
    entry.set_seconds(1.25 * (i + 1));
    entry.set_train_loss(i == 0 ? std::nan("") : 0.25);
    entry.set_test_loss(0.5);
    entry.set_test_accuracy(0.9);
    v1::WorkerReport& worker = *status.add_worker_reports();
    worker.set_rank(i);
    worker.set_pull_payload_bytes(3 << 20);
    worker.set_push_payload_bytes(5 << 10);
    v1::MemberStatus& member = *status.add_members();
    member.set_rank(i);
    v1::ServerCounters& counters = *status.add_servers()->mutable_counters();
    for (uint64_t count : {30, 60, 10}) counters.add_staleness_histogram(count);
    counters.set_staleness_sum(80);
    counters.set_staleness_max(2);
  }
  v1::CheckpointStatus& checkpoint = *status.mutable_checkpoint();
  checkpoint.set_count(3);
  checkpoint.set_step(300);
  checkpoint.set_bytes(40 << 10);
  checkpoint.set_failure("\"ckpt\": No space left on device");
  return status;
}

TEST_CASE("a report tells how the job ended, and how far of how much it was", "[cli][report]") {
  v1::JobStatus status = Ended();
  status.set_outcome("stopped");
  status.set_stop_reason("SIGTERM to tessera run");
  status.set_steps_planned(900);
  status.mutable_origin()->set_started_ns(1764230400123000000);
  const absl::StatusOr<v1::JobStatus> told = StatusOfReport(ReportJson(status));
  REQUIRE(told.ok());
  CHECK(told->outcome() == "stopped");
  CHECK(told->stop_reason() == "SIGTERM to tessera run");
  CHECK(told->step() == 400);
  CHECK(told->steps_planned() == 900);
  CHECK(told->origin().started_ns() == 1764230400123000000);
  CHECK(Progress::Summary(*told, "r") == Progress::Summary(status, "r"));
}

TEST_CASE("a report tells the closing table what the last status would have", "[cli][report]") {
  const v1::JobStatus status = Ended();
  const absl::StatusOr<v1::JobStatus> told = StatusOfReport(ReportJson(status));
  REQUIRE(told.ok());
  CHECK(Progress::Summary(*told, "r.json") == Progress::Summary(status, "r.json"));
  REQUIRE(told->history_size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(Progress::HistoryLine(told->history(i)) == Progress::HistoryLine(status.history(i)));
  }
  CHECK(told->report_json() == ReportJson(status));
  CHECK(told->failure().empty());
  v1::JobStatus failed = status;
  failed.set_failure("all workers are gone");
  CHECK(StatusOfReport(ReportJson(failed))->failure() == "all workers are gone");
}

TEST_CASE("a status without a report is made of the one in a file, if there is one",
          "[cli][report]") {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/report.json";
  v1::JobStatus latest;
  latest.set_step(17);
  latest.set_free_running(true);
  CHECK(WithReport(latest, path + ".none")->step() == 17);
  CHECK_FALSE(HasReport(WithReport(std::nullopt, path + ".none")));
  std::ofstream(path) << ReportJson(Ended()) << "\n";
  const std::optional<v1::JobStatus> told = WithReport(latest, path);
  REQUIRE(HasReport(told));
  CHECK(told->step() == 400);
  // The job may have begun after the last status.
  CHECK(told->generation() == 3);
  CHECK(told->free_running());
  CHECK(told->report_json() == ReportJson(Ended()));
  CHECK(WithReport(std::nullopt, path)->generation() == 3);
  // One that has come is not looked for.
  latest.set_report_json("{}");
  CHECK(WithReport(latest, path)->step() == 17);
}

TEST_CASE("what is no report is refused", "[cli][report]") {
  for (const char* text : {"", "{", "[]", "3", "{}", "{\"outcome\": 7}"}) {
    INFO(text);
    CHECK(absl::IsInvalidArgument(StatusOfReport(text).status()));
  }
  CHECK(StatusOfReport(
            "{\"outcome\": \"finished\", \"traffic\": 3, \"history\": [null], \"steps\": -1}")
            .ok());
}

}  // namespace
}  // namespace tessera
