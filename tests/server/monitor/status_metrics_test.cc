#include "server/monitor/status_metrics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <regex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/monitor/exposition.h"
#include "tests/server/monitor/whole_status.h"

namespace tessera {
namespace {

Exposition ExpositionOf(const v1::JobStatus& status, absl::string_view job_name = "") {
  Exposition result = Parse(TextOf(MetricsOf(status, job_name)));
  CHECK(result.errors.empty());
  return result;
}

TEST_CASE("every metric has the prefix, a type, a line of help, and _total only where it counts",
          "[monitor]") {
  const Exposition text = ExpositionOf(WholeStatus());
  CHECK(text.names().size() > 60);
  // No unit but the base ones, and none that was shortened.
  const std::regex bad(
      ".*_(ms|us|millis|milliseconds|minutes|hours|kb|mb|kib|mib|percent|sec|secs)(_total)?");
  for (const auto& [name, type] : text.types) {
    INFO(name);
    CHECK(absl::StartsWith(name, "tessera_"));
    CHECK_FALSE(std::regex_match(name, bad));
    CHECK(absl::EndsWith(name, "_total") == (type == "counter"));
    REQUIRE(text.help.count(name) == 1);
    CHECK(absl::EndsWith(text.help.at(name), "."));
    CHECK(text.help.at(name).size() > 10);
  }
}

TEST_CASE("the values are the status's", "[monitor]") {
  const Exposition text = ExpositionOf(WholeStatus());
  const auto at = [&](const std::string& sample) {
    INFO(sample);
    REQUIRE(text.has(sample));
    return text.samples.at(sample);
  };
  CHECK(at(R"(tessera_build_info{version="1.0",security="none"})") == 1);
  CHECK(at(R"(tessera_job_info{method="ssp",digest="d1"})") == 1);
  CHECK(at(R"(tessera_job_state{state="training"})") == 1);
  CHECK(at(R"(tessera_job_state{state="waiting"})") == 0);
  CHECK(at("tessera_job_waiting_for") == 1);
  CHECK(at("tessera_job_failed") == 0);
  CHECK(at("tessera_job_step") == 44);
  CHECK(at("tessera_job_planned_steps") == 400);
  CHECK(at("tessera_job_examples_total") == 1000);
  CHECK(at("tessera_job_train_seconds_total") == 12.5);
  CHECK(at("tessera_job_learning_rate_factor") == 0.5);
  CHECK(at("tessera_job_members_lost_total") == 1);
  CHECK(at("tessera_job_residuals_lost_total") == 1);
  CHECK(at("tessera_job_lease_timeout_seconds") == 10);
  CHECK(at("tessera_evaluations_total") == 2);
  CHECK(at("tessera_evaluation_step") == 20);
  CHECK(at("tessera_evaluation_test_accuracy_ratio") == 0.8);
  CHECK(at(R"(tessera_evaluation_precision_ratio{k="5"})") == 0.5);
  CHECK(at(R"(tessera_evaluation_top_k_accuracy_ratio{k="3"})") == 0.9);
  CHECK(at(R"(tessera_server_version{server="1"})") == 8);
  CHECK(at(R"(tessera_server_payload_bytes_total{server="1",direction="push"})") == 1001);
  CHECK(at(R"(tessera_server_staleness_versions_bucket{server="0",le="4"})") == 7);
  CHECK(at(R"(tessera_server_staleness_versions_bucket{server="0",le="+Inf"})") == 10);
  CHECK(at(R"(tessera_server_staleness_versions_sum{server="0"})") == 113);
  CHECK(at("tessera_checkpoint_age_seconds") == 6);
  CHECK(at("tessera_checkpoint_failed") == 1);
  CHECK(at("tessera_checkpoint_failures_total") == 2);
  CHECK(at(R"(tessera_shard_protected{shard="1"})") == 0);
  CHECK(at("tessera_takeover_seconds") == 0.2);
  CHECK(at("tessera_coordinator_term") == 2);
  CHECK(at("tessera_coordinator_away") == 1);
}

TEST_CASE("every series has the name of its job, of whichever server it is", "[monitor]") {
  v1::JobStatus own;
  own.set_state("training");
  *own.add_servers() = WholeStatus().servers(1);
  for (const v1::JobStatus& status : {WholeStatus(), own}) {
    const Exposition text = ExpositionOf(status, "digits");
    CHECK(text.samples.size() == ExpositionOf(status).samples.size());
    for (const auto& [sample, value] : text.samples) {
      INFO(sample);
      CHECK(absl::StrContains(sample, "{job_name=\"digits\""));
    }
  }
}

TEST_CASE("traffic is what workers have reported and what the others told last, as in the report",
          "[monitor]") {
  const Exposition text = ExpositionOf(WholeStatus());
  CHECK(text.samples.at("tessera_job_exchanges_total") == 42);
  CHECK(text.samples.at(R"(tessera_job_payload_bytes_total{direction="push"})") == 2000);
  CHECK(text.samples.at(R"(tessera_job_payload_bytes_total{direction="pull"})") == 2000);
  CHECK(text.samples.at(R"(tessera_job_payload_bytes_total{direction="other"})") == 15);
  CHECK(text.samples.at(R"(tessera_job_payload_bytes_total{direction="replication"})") == 600);
  CHECK(text.samples.at(R"(tessera_job_wire_bytes_total{direction="push"})") == 2100);
  CHECK(text.samples.at("tessera_job_shared_memory_bytes_total") == 500);
  CHECK(text.samples.at(R"(tessera_job_wire_bytes_total{direction="pull"})") == 2100);
}

TEST_CASE(
    "a rank's counters are sums over all that had it, and its gauges those of the one that is here",
    "[monitor]") {
  const Exposition text = ExpositionOf(WholeStatus());
  CHECK(text.samples.at(R"(tessera_member_examples_total{rank="1"})") == 350);
  CHECK(text.samples.at(R"(tessera_member_phase_seconds_total{rank="1",phase="wait"})") == 6);
  CHECK(text.samples.at(R"(tessera_member_step{rank="1"})") == 44);
  CHECK(text.samples.at(R"(tessera_member_lease_age_seconds{rank="1"})") == 1);
  // Worker 2 has left: what it did stays, and nobody waits for its lease.
  CHECK(text.samples.at(R"(tessera_member_examples_total{rank="2"})") == 150);
  CHECK_FALSE(text.has(R"(tessera_member_lease_age_seconds{rank="2"})"));
  CHECK(text.samples.at(R"(tessera_members{state="training"})") == 2);
  CHECK(text.samples.at(R"(tessera_members{state="lost"})") == 1);
  CHECK(text.samples.at(R"(tessera_members{state="waiting"})") == 0);
}

TEST_CASE("a thousand workers that die and join again add no series", "[monitor]") {
  v1::JobStatus status = WholeStatus();
  const size_t before = ExpositionOf(status).samples.size();
  for (uint64_t id = 5; id < 1000; ++id) {
    v1::MemberStatus& member = *status.add_members();
    member.set_member(id);
    member.set_rank(1);
    member.set_state("lost");
    member.set_description("another host:" + std::to_string(id));
    member.mutable_progress()->set_examples(1);
  }
  const Exposition text = ExpositionOf(status);
  CHECK(text.samples.size() == before);
  CHECK(text.samples.at(R"(tessera_member_examples_total{rank="1"})") == 350 + 995);
}

TEST_CASE("what the status does not have is absent, not 0", "[monitor]") {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_state("waiting");
  status.add_servers()->set_rank(0);
  const Exposition text = ExpositionOf(status);
  for (const char* name :
       {"tessera_job_planned_steps", "tessera_job_learning_rate_factor",
        "tessera_job_residuals_lost_total", "tessera_evaluation_test_loss",
        "tessera_evaluation_precision_ratio", "tessera_checkpoints_total",
        "tessera_checkpoint_age_seconds", "tessera_shard_protected", "tessera_takeovers_total",
        "tessera_coordinator_away", "tessera_member_step", "tessera_server_version"}) {
    INFO(name);
    CHECK(text.names().count(name) == 0);
  }
  CHECK(text.samples.at(R"(tessera_server_registered{server="0"})") == 0);
  // Members that have made no minibatch yet, a server that has counted nothing, a coordinator nobody has heard of.
  status.add_members()->set_state("training");
  status.mutable_servers(0)->set_address("10.0.0.1:7000");
  status.mutable_coordinator();
  const Exposition begun = ExpositionOf(status);
  CHECK(begun.has(R"(tessera_member_step{rank="0"})"));
  CHECK(begun.has(R"(tessera_server_version{server="0"})"));
  for (const char* name :
       {"tessera_member_train_loss", "tessera_server_resident_memory_bytes",
        "tessera_server_peak_resident_memory_bytes", "tessera_coordinator_term"}) {
    INFO(name);
    CHECK(begun.names().count(name) == 0);
  }
  status.mutable_members(0)->mutable_progress()->set_train_loss(0);
  CHECK(ExpositionOf(status).samples.at(R"(tessera_member_train_loss{rank="0"})") == 0);
  // One that keeps checkpoints and has none yet.
  status.mutable_checkpoint();
  const Exposition none_yet = ExpositionOf(status);
  CHECK(none_yet.samples.at("tessera_checkpoints_total") == 0);
  CHECK_FALSE(none_yet.has("tessera_checkpoint_age_seconds"));
  status.set_free_running(true);
  CHECK_FALSE(ExpositionOf(status).has("tessera_job_round"));
}

TEST_CASE("a server that is not the coordinator's has its own share alone", "[monitor]") {
  v1::JobStatus own;
  own.set_state("training");
  own.set_job_digest("d1");
  own.mutable_coordinator()->set_silent_seconds(0.5);
  *own.add_servers() = WholeStatus().servers(1);
  const Exposition text = ExpositionOf(own);
  CHECK(text.samples.at(R"(tessera_server_version{server="1"})") == 8);
  CHECK(text.samples.at(R"(tessera_job_state{state="training"})") == 1);
  CHECK(text.samples.at("tessera_coordinator_silent_seconds") == 0.5);
  for (const std::string& name : text.names()) {
    INFO(name);
    const bool is_share = absl::StartsWith(name, "tessera_server_") ||
                          absl::StartsWith(name, "tessera_coordinator_") ||
                          name == "tessera_build_info" || name == "tessera_job_state" ||
                          name == "tessera_job_waiting_for";
    CHECK(is_share);
  }
  // Before it has heard anything there is no state either.
  CHECK(ExpositionOf(v1::JobStatus()).names() == std::set<std::string>{"tessera_build_info"});
}

TEST_CASE("names from outside do not break the text", "[monitor]") {
  v1::JobStatus status = WholeStatus();
  const std::string name = "a \"job\"\\\nwith all";
  status.set_job(name);
  status.mutable_members(0)->set_description("\"\\\n");
  status.set_failure("it \"failed\"\nbadly");
  const Exposition text = ExpositionOf(status, name);
  CHECK(text.has(R"(tessera_job_info{job_name="a \"job\"\\\nwith all",method="ssp",digest="d1"})"));
  CHECK(text.has(R"(tessera_job_failed{job_name="a \"job\"\\\nwith all"})"));
}

TEST_CASE("a job that was stopped has not failed, whether or not it was evaluated", "[monitor]") {
  v1::JobStatus status = WholeStatus();
  status.set_failure(GENERATE("", "stopped: the disk is wanted"));
  status.set_outcome("stopped");
  const Exposition text = ExpositionOf(status);
  CHECK(text.samples.at("tessera_job_failed") == 0);
  CHECK(text.samples.at("tessera_job_stopped") == 1);
}

TEST_CASE("what a worker tells of its seconds spoils no sum", "[monitor]") {
  v1::JobStatus status = WholeStatus();
  status.mutable_members(1)->mutable_progress()->mutable_phases()->set_wait_seconds(-1e300);
  status.mutable_members(1)->mutable_progress()->mutable_phases()->set_pull_seconds(std::nan(""));
  const Exposition text = ExpositionOf(status);
  CHECK(text.samples.at(R"(tessera_member_phase_seconds_total{rank="1",phase="wait"})") == 3);
  CHECK(text.samples.at(R"(tessera_member_phase_seconds_total{rank="1",phase="pull"})") == 1);
}

}  // namespace
}  // namespace tessera
