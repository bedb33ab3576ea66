#include "deploy/doctor/limits_check.h"

#include <catch2/catch.hpp>

#include "absl/status/status.h"

namespace tessera {
namespace {

// What is asked for.
ProcessNeeds NeedsOf(const v1::Job& job, bool has_workers) {
  ProcessNeeds asked;
  const Findings findings = CheckLimits(job, has_workers, [&asked](const ProcessNeeds& needs) {
    asked = needs;
    return absl::OkStatus();
  });
  CHECK(findings.empty());
  return asked;
}

v1::Job JobOf(int64_t servers, int64_t workers, int64_t threads) {
  v1::Job job;
  job.mutable_cluster()->mutable_servers()->set_count(servers);
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_threads(threads);
  return job;
}

TEST_CASE("a job on this machine needs the threads of all its processes", "[doctor]") {
  const ProcessNeeds two = NeedsOf(JobOf(2, 2, 1), true);
  const ProcessNeeds more_workers = NeedsOf(JobOf(2, 3, 1), true);
  const ProcessNeeds more_servers = NeedsOf(JobOf(3, 2, 1), true);
  CHECK(two.children_threads > 4 * 20);
  CHECK(more_workers.children_threads - two.children_threads > 20);
  CHECK(more_servers.children_threads - two.children_threads > 20);
  // Each worker's own.
  CHECK(NeedsOf(JobOf(2, 2, 5), true).children_threads - two.children_threads == 2 * 4);
}

TEST_CASE("of a job on several machines one process is asked for", "[doctor]") {
  v1::Job job = JobOf(2, 2, 8);
  job.mutable_cluster()->mutable_servers()->add_addresses("a:1");
  job.mutable_cluster()->mutable_servers()->add_addresses("b:1");
  const ProcessNeeds worker = NeedsOf(job, true);
  CHECK(worker.children_threads == 0);
  job.mutable_cluster()->set_threads(9);
  CHECK(NeedsOf(job, true).threads == worker.threads + 1);
  const ProcessNeeds server = NeedsOf(job, false);
  job.mutable_cluster()->set_threads(1);
  CHECK(NeedsOf(job, false).threads == server.threads);
  job.mutable_cluster()->set_workers(100);
  CHECK(NeedsOf(job, false).files > server.files);
}

TEST_CASE("what a limit refuses is a problem", "[doctor]") {
  const auto refuse = [](const ProcessNeeds&) { return absl::InvalidArgumentError("too few"); };
  const Findings findings = CheckLimits(JobOf(2, 2, 1), true, refuse);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == Finding::Kind::kProblem);
  CHECK(findings[0].what == "too few");
  CHECK(findings[0].advice == "`tessera run` will not start here before that");
}

}  // namespace
}  // namespace tessera
