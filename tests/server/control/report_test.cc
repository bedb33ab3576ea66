#include "server/control/report.h"

#include <cmath>

#include <catch2/catch.hpp>
#include <optional>

#include "nlohmann/json.hpp"

namespace tessera {
namespace {

TEST_CASE("the report has every key of its contract and sums what it should", "[control][report]") {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_method("data_parallel");
  status.set_seed(7);
  status.set_train_seconds(4);
  status.set_wall_seconds(6);
  status.set_step(50);
  status.set_round(50);
  status.set_members_joined(2);
  status.set_method_description("all wait for all");
  status.set_parameter_examples(190);
  status.set_examples(200);
  // Of one that was lost.
  status.mutable_unreported()->set_exchanges(7);
  status.mutable_unreported()->set_pull_payload_bytes(5);
  for (int i = 0; i < 2; ++i) {
    v1::WorkerReport& worker = *status.add_worker_reports();
    worker.set_rank(1 - i);  // They left in the other order.
    worker.set_exchanges(50);
    worker.set_pull_payload_bytes(10 + i);
    worker.set_backend("cpu");
    v1::ServerStatus& server = *status.add_servers();
    server.set_rank(i);
    v1::ServerCounters& counters = *server.mutable_counters();
    counters.add_staleness_histogram(3);
    counters.add_staleness_histogram(1);
    counters.add_staleness_histogram(0);
    counters.set_staleness_sum(1);
    counters.set_staleness_max(1);
    counters.set_parameter_bytes(1000);
    counters.set_parameters_hash(0x8000000000000001);
  }
  v1::HistoryEntry& entry = *status.add_history();
  entry.set_test_accuracy(0.5);
  entry.set_train_loss(std::nan(""));
  for (double p : {0.5, 0.25, 0.125}) entry.add_precision_at(p);

  const nlohmann::json report = nlohmann::json::parse(ReportJson(status));
  for (const char* key : {"job", "method", "seed", "wall_seconds", "train_seconds", "steps",
                          "rounds", "examples", "examples_per_second", "final", "history",
                          "traffic", "staleness", "memory", "phases", "members", "build"}) {
    INFO(key);
    CHECK(report.contains(key));
  }
  CHECK(report["examples"] == 200);
  CHECK(report["examples_per_second"] == 50.0);
  CHECK(report["final"]["test_accuracy"] == 0.5);
  CHECK(report["final"]["train_loss"].is_null());
  CHECK(report["final"]["precision_at"]["3"] == 0.25);
  CHECK(report["history"][0]["train_loss"].is_null());
  CHECK(report["traffic"]["exchanges"] == 107);
  CHECK(report["traffic"]["pull_payload_bytes"] == 26);
  CHECK(report["traffic"]["by_worker"][0]["worker"] == 0);
  CHECK(report["traffic"]["by_worker"][0]["pull_payload_bytes"] == 11);
  CHECK(report["staleness"]["mean"] == 0.25);
  CHECK(report["staleness"]["histogram"] == nlohmann::json({6, 2}));
  CHECK(report["memory"]["parameter_bytes"] == 2000);
  CHECK(report["memory"]["server_peak_rss_bytes"].size() == 2);
  CHECK(report["phases"].size() == 2);
  CHECK(report["parameters_hash"] == "0000000000000002");
  CHECK(report["build"]["backend"] == "cpu");
  CHECK(report["outcome"] == "finished");
  CHECK(report["planned_steps"].is_null());
  CHECK(report["method_description"] == "all wait for all");
  CHECK(report["parameter_examples"] == 190);
  CHECK(report["parts"].empty());
  CHECK(report["residuals_lost"].is_null());
  status.set_residuals_lost(0);
  CHECK(nlohmann::json::parse(ReportJson(status))["residuals_lost"] == 0);
}

// A process of a rank. `peak`, if it gave a report: its memory, and so many seconds of each phase.
void AddMember(uint64_t number, uint32_t rank, std::optional<uint64_t> peak,
               v1::JobStatus* status) {
  v1::MemberStatus& member = *status->add_members();
  member.set_member(number);
  member.set_rank(rank);
  if (!peak) return;
  v1::WorkerReport& report = *status->add_worker_reports();
  report.set_rank(rank);
  report.set_member(number);
  report.set_peak_rss_bytes(*peak);
}

TEST_CASE("how often the label is among the first predictions is told where rows have one",
          "[control][report]") {
  v1::JobStatus status;
  const auto final_of = [&] { return nlohmann::json::parse(ReportJson(status))["final"]; };
  nlohmann::json none = {{"1", nullptr}, {"3", nullptr}, {"5", nullptr}};
  CHECK(final_of()["precision_at"] == none);
  none["10"] = nullptr;
  CHECK(final_of()["top_k_accuracy"] == none);
  v1::HistoryEntry& entry = *status.add_history();
  for (double p : {0.5, 0.25, 0.125}) entry.add_precision_at(p);
  CHECK(final_of()["precision_at"]["5"] == 0.125);
  CHECK(final_of()["top_k_accuracy"]["5"].is_null());
  for (double p : {0.5, 0.75, 0.625}) entry.add_top_k_accuracy(p);
  CHECK(final_of()["precision_at"]["5"] == 0.125);
  nlohmann::json shares = {{"1", 0.5}, {"3", 0.75}, {"5", 0.625}, {"10", nullptr}};
  CHECK(final_of()["top_k_accuracy"] == shares);
  entry.add_top_k_accuracy(0.875);
  shares["10"] = 0.875;
  CHECK(final_of()["top_k_accuracy"] == shares);
  CHECK(nlohmann::json::parse(ReportJson(status))["history"][0]["top_k_accuracy"] == shares);
}

TEST_CASE("a report names its job whole, and null where nobody said", "[control][report]") {
  v1::JobStatus status;
  nlohmann::json report = nlohmann::json::parse(ReportJson(status));
  for (const char* key : {"job_file", "job_digest", "overrides", "started", "host", "command"}) {
    INFO(key);
    REQUIRE(report.contains(key));
    CHECK(report[key].is_null());
  }
  CHECK(report["versions"] ==
        nlohmann::json({{"server", nullptr}, {"workers", nlohmann::json::array()}}));
  status.set_job_digest("d1");
  status.set_version("1.2");
  for (const char* version : {"1.1", "1.2", "1.1", ""}) {
    status.add_worker_reports()->set_version(version);
  }
  v1::JobOrigin& origin = *status.mutable_origin();
  origin.set_job_file("/jobs/a.yaml");
  origin.set_started_ns(1700000000123456789);
  origin.set_host("here");
  origin.set_command("tessera run a.yaml");
  (*origin.mutable_libraries())["grpc"] = "1.51";
  report = nlohmann::json::parse(ReportJson(status));
  CHECK(report["job_digest"] == "d1");
  CHECK(report["job_file"] == "/jobs/a.yaml");
  CHECK(report["overrides"] == nlohmann::json::array());
  origin.add_overrides("seed=1");
  CHECK(nlohmann::json::parse(ReportJson(status))["overrides"] == nlohmann::json({"seed=1"}));
  CHECK(report["started"] == "2023-11-14T22:13:20.123Z");
  CHECK(report["host"] == "here");
  CHECK(report["command"] == "tessera run a.yaml");
  CHECK(report["versions"] ==
        nlohmann::json({{"server", "1.2"}, {"workers", {"1.1", "1.2"}}, {"grpc", "1.51"}}));
}

TEST_CASE("of a checkpoint that was not written nothing is told", "[control][report]") {
  v1::JobStatus status;
  status.mutable_checkpoint()->set_failure("no room");
  nlohmann::json checkpoint = nlohmann::json::parse(ReportJson(status))["checkpoint"];
  CHECK(checkpoint["count"] == 0);
  CHECK(checkpoint["failure"] == "no room");
  for (const char* key : {"step", "bytes", "write_seconds"}) CHECK(checkpoint[key].is_null());
  status.mutable_checkpoint()->set_count(1);
  checkpoint = nlohmann::json::parse(ReportJson(status))["checkpoint"];
  CHECK(checkpoint["step"] == 0);
}

TEST_CASE("peaks of memory are by rank, the most of its processes, null where none told",
          "[control][report]") {
  v1::JobStatus status;
  AddMember(1, 0, std::nullopt, &status);  // It was killed, and nobody came in its place.
  AddMember(2, 1, 30, &status);
  AddMember(3, 2, 50, &status);
  AddMember(4, 2, 40, &status);
  AddMember(5, 3, std::nullopt, &status);
  for (int rank : {0, 2}) {
    v1::ServerStatus& server = *status.add_servers();
    server.set_rank(rank);
    server.mutable_counters()->set_peak_rss_bytes(rank * 10);  // 0: it has not told.
  }
  const nlohmann::json memory = nlohmann::json::parse(ReportJson(status))["memory"];
  CHECK(memory["worker_peak_rss_bytes"] == nlohmann::json({nullptr, 30, 50, nullptr}));
  CHECK(memory["server_peak_rss_bytes"] == nlohmann::json({nullptr, nullptr, 20}));
}

TEST_CASE("processes of one rank are told apart by their member", "[control][report]") {
  v1::JobStatus status;
  AddMember(7, 1, 30, &status);
  AddMember(8, 0, std::nullopt, &status);
  AddMember(9, 0, 40, &status);
  AddMember(10, 0, 50, &status);
  const nlohmann::json report = nlohmann::json::parse(ReportJson(status));
  for (const nlohmann::json& entries : {report["phases"], report["traffic"]["by_worker"]}) {
    REQUIRE(entries.size() == 3);
    const uint64_t want[][2] = {{0, 9}, {0, 10}, {1, 7}};
    for (size_t i = 0; i < entries.size(); ++i) {
      CHECK(entries[i]["worker"] == want[i][0]);
      CHECK(entries[i]["member"] == want[i][1]);
    }
  }
  // A coordinator of an older build did not say.
  status.mutable_worker_reports(1)->clear_member();
  CHECK(nlohmann::json::parse(ReportJson(status))["phases"][0]["member"].is_null());
}

TEST_CASE("parts are those of workers that have one, by rank", "[control][report]") {
  v1::JobStatus status;
  for (const auto& [rank, part] : {std::pair<int, double>{1, 0.25}, {0, 0}, {0, 0.75}}) {
    status.add_members()->set_rank(rank);
    status.mutable_members(status.members_size() - 1)->set_part(part);
  }
  CHECK(nlohmann::json::parse(ReportJson(status))["parts"] ==
        nlohmann::json::parse(R"([{"worker": 0, "part": 0.75}, {"worker": 1, "part": 0.25}])"));
}

TEST_CASE("what went to standbys is other traffic, and takeovers are told", "[control][report]") {
  v1::JobStatus status;
  CHECK(nlohmann::json::parse(ReportJson(status))["standbys"].is_null());
  status.add_worker_reports()->set_other_payload_bytes(7);
  status.mutable_worker_reports(0)->set_shared_memory_bytes(6);
  status.mutable_unreported()->set_shared_memory_bytes(30);
  status.set_replication_payload_bytes(100);
  status.add_owners()->set_in_sync(true);
  status.add_owners();
  status.set_takeovers(1);
  status.add_takeover_seconds(0.5);
  const nlohmann::json report = nlohmann::json::parse(ReportJson(status));
  CHECK(report["traffic"]["other_payload_bytes"] == 107);
  CHECK(report["traffic"]["by_worker"][0]["other_payload_bytes"] == 7);
  CHECK(report["traffic"]["shared_memory_bytes"] == 36);
  CHECK(report["traffic"]["by_worker"][0]["shared_memory_bytes"] == 6);
  CHECK(report["standbys"] == nlohmann::json::parse(R"({"shards": 2, "in_sync": 1,
    "takeovers": 1, "takeover_seconds": [0.5], "payload_bytes": 100})"));
}

TEST_CASE("rounds are what was committed, and without lockstep the most exchanges of a worker",
          "[control][report]") {
  v1::JobStatus status;
  status.set_round(40);
  // Servers passed over three exchanges that nobody made.
  status.add_history()->set_round(43);
  CHECK(nlohmann::json::parse(ReportJson(status))["rounds"] == 40);
  status.set_free_running(true);
  status.set_round(0);
  CHECK(nlohmann::json::parse(ReportJson(status))["rounds"] == 43);
}

TEST_CASE("a job that never trained has nulls, not infinities", "[control][report]") {
  v1::JobStatus status;
  status.set_job("name \xff is not UTF-8");
  const nlohmann::json report = nlohmann::json::parse(ReportJson(status));
  CHECK(report["examples_per_second"].is_null());
  CHECK(report["staleness"]["mean"].is_null());
  CHECK(report["final"]["test_loss"].is_null());
  CHECK(report["build"]["cpu"] == "");
}

}  // namespace
}  // namespace tessera
