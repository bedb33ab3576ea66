#include "deploy/doctor/server_check.h"

#include <catch2/catch.hpp>

#include <string>

namespace tessera {
namespace {

const absl::Time kNoon = absl::FromUnixSeconds(1700000000);

WantedServer Want() { return {1, "10.0.0.2:7000", std::string(64, 'a'), 5, 77, "0.1.0"}; }

v1::JobStatus Right() {
  v1::JobStatus status;
  status.set_job_digest(std::string(64, 'a'));
  status.set_layout_hash(5);
  status.set_version("0.1.0");
  status.set_state("training");
  status.set_clock_ns(absl::ToUnixNanos(kNoon));
  v1::ServerStatus* const own = status.add_servers();
  own->set_rank(1);
  own->mutable_counters()->set_initial_hash(77);
  return status;
}

Findings Judge(const v1::JobStatus& status, absl::Duration took = absl::Milliseconds(10)) {
  return JudgeServer(Want(), status, kNoon - took / 2, kNoon + took / 2);
}

TEST_CASE("a server that is as the job wants it is good", "[doctor]") {
  const Findings findings = Judge(Right());
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == Finding::Kind::kGood);
  CHECK(findings[0].what == "server 1 at 10.0.0.2:7000: training, security none");
  CHECK(findings[0].advice.empty());
}

TEST_CASE("each thing that differs is one finding, with what to do", "[doctor]") {
  struct {
    void (*change)(v1::JobStatus*);
    const char* says;
  } cases[] = {
      {[](v1::JobStatus* s) { s->set_job_digest(std::string(64, 'b')); },
       "server 1 at 10.0.0.2:7000: its job's digest is bbbbbbbbbbbb, this job's is aaaaaaaaaaaa"},
      {[](v1::JobStatus* s) { s->set_version("0.0.9"); },
       "server 1 at 10.0.0.2:7000: its version is 0.0.9, this one is 0.1.0"},
      {[](v1::JobStatus* s) { s->set_layout_hash(6); },
       "server 1 at 10.0.0.2:7000: its layout hash is 0000000000000006, want 0000000000000005"},
      {[](v1::JobStatus* s) { s->mutable_servers(0)->set_rank(2); },
       "server 1 at 10.0.0.2:7000: it does not know a server 1"},
      {[](v1::JobStatus* s) { s->mutable_servers(0)->mutable_counters()->set_initial_hash(78); },
       "server 1 at 10.0.0.2:7000: its initial parameters are not those of this machine, from the "
       "same seed"},
  };
  for (const auto& c : cases) {
    v1::JobStatus status = Right();
    c.change(&status);
    const Findings findings = Judge(status);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].kind == Finding::Kind::kProblem);
    CHECK(findings[0].what == c.says);
    CHECK_FALSE(findings[0].advice.empty());
  }
}

TEST_CASE("a clock that is off is noted, and a slow answer is not taken for one", "[doctor]") {
  v1::JobStatus status = Right();
  status.set_clock_ns(absl::ToUnixNanos(kNoon + absl::Milliseconds(2500)));
  Findings findings = Judge(status);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == Finding::Kind::kNote);
  CHECK(findings[0].what == "server 1 at 10.0.0.2:7000: its clock is 2.5s ahead of this machine's");
  CHECK(Judge(status, absl::Seconds(4))[0].kind == Finding::Kind::kGood);
  status.set_clock_ns(absl::ToUnixNanos(kNoon - absl::Hours(1)));
  CHECK(Judge(status)[0].what ==
        "server 1 at 10.0.0.2:7000: its clock is 1h behind this machine's");
}

}  // namespace
}  // namespace tessera
