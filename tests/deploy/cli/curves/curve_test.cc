#include "deploy/cli/curves/curve.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

namespace tessera {
namespace {

v1::JobStatus Ended() {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_method("async");
  status.set_step(400);
  status.set_examples(25600);
  v1::WorkerReport& worker = *status.add_worker_reports();
  worker.set_pull_payload_bytes(3000);
  worker.set_push_payload_bytes(1000);
  for (const int step : {100, 400}) {
    v1::HistoryEntry& entry = *status.add_history();
    entry.set_step(step);
    entry.set_seconds(step / 100.0);
    entry.set_epoch(step / 50.0);
    entry.set_train_loss(40.0 / step);
    entry.set_test_loss(0.1);
    entry.set_test_accuracy(0.9);
  }
  return status;
}

TEST_CASE("rows and bytes are dealt out to evaluations by their steps", "[cli][curves]") {
  const Curve curve = CurveOf(Ended());
  CHECK(curve.job == "digits");
  CHECK(curve.method == "async");
  REQUIRE(curve.points.size() == 2);
  CHECK(curve.points[0].examples == 6400);
  CHECK(curve.points[1].examples == 25600);
  CHECK(curve.points[0].bytes == 1000);
  CHECK(curve.points[1].bytes == 4000);
  CHECK(curve.points[0].rate == 6400);
  CHECK(curve.points[1].rate == 6400);
  CHECK(std::isnan(curve.points[1].perplexity));
}

TEST_CASE("a curve as CSV has a line of names, and nothing for what is no number",
          "[cli][curves]") {
  v1::JobStatus status = Ended();
  status.mutable_history(0)->set_train_loss(NAN);
  CHECK(CurveCsv(CurveOf(status)) ==
        "seconds,step,epoch,examples,bytes,examples_per_second,train_loss,test_loss,test_accuracy,"
        "perplexity\n"
        "1,100,2,6400,1000,6400,,0.1,0.9,\n"
        "4,400,8,25600,4000,6400,0.1,0.1,0.9,\n");
  status.clear_history();
  CHECK(CurveCsv(CurveOf(status)).find("seconds,") == 0);
}

TEST_CASE("an evaluation before the first step has no rate and no bytes", "[cli][curves]") {
  v1::JobStatus status;
  status.add_history();
  const Curve curve = CurveOf(status);
  CHECK(curve.points[0].bytes == 0);
  CHECK(std::isnan(curve.points[0].rate));
}

}  // namespace
}  // namespace tessera
