// The command: flags, messages, exit codes, the report.
#include "deploy/cli/simulate_command.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/flag_reader.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using Json = nlohmann::json;

std::string TemporaryPath(const std::string& name) {
  const char* folder = getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : ".") + "/" + name;
}

SimulateOptions Digits(const std::string& job = "digits") {
  SimulateOptions options;
  options.job_path = "deploy/jobs/" + job + ".yaml";
  options.overrides = {"train.epochs=3"};
  options.bandwidth = "1Gbit";
  options.latency = "1ms";
  options.step_time = "2ms";
  options.report_path = TemporaryPath("report.json");
  options.quiet = true;
  return options;
}

std::string ReportText(const SimulateOptions& options) {
  std::ifstream file(options.report_path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("bandwidths are bits or bytes per second, in powers of a thousand", "[simulate]") {
  CHECK(ParseBandwidth("1Gbit") == 125'000'000);
  CHECK(ParseBandwidth("2.5Gbit") == 312'500'000);
  CHECK(ParseBandwidth("100Mbit") == 12'500'000);
  CHECK(ParseBandwidth("800kbit") == 100'000);
  CHECK(ParseBandwidth("8bit") == 1);
  CHECK(ParseBandwidth("100MB") == 100'000'000);
  CHECK(ParseBandwidth("1GiB") == int64_t{1} << 30);
  CHECK(ParseBandwidth("0") == 0);
  for (const char* bad : {"", "bit", "Gbit", "-1Gbit", "1gbit", "1Gbits", "1Gb", "1e30Tbit", "7bit",
                          "nanMbit", "1 Gbit", "fast", "1", "100", "1000000000"}) {
    CAPTURE(bad);
    CHECK_FALSE(ParseBandwidth(bad).has_value());
  }
}

TEST_CASE("what is no bandwidth is told with the units that there are", "[simulate]") {
  FlagReader flags("tessera plan");
  flags.Bandwidth("bandwidth", "1.5GB");
  CHECK(flags.errors() ==
        "tessera plan: --bandwidth: got \"1.5GB\", want a bandwidth such as 1.5Gbit, in bit, kbit, "
        "Mbit, Gbit or Tbit, or 100MB, in whole B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, or 0; see "
        "tessera plan --help\n");
}

TEST_CASE("a simulated job writes the report of a job, and the same one again", "[simulate]") {
  const std::string job = GENERATE("digits", "digits_async", "digits_local_sgd", "digits_diloco",
                                   "digits_softsync", "digits_ssp", "digits_ist");
  SimulateOptions options = Digits(job);
  options.workers = 5;
  options.servers = 3;
  options.speed_spread = 0.3;
  REQUIRE(SimulateJob(options) == 0);
  const std::string first = ReportText(options);
  const Json report = Json::parse(first);
  CHECK(report["outcome"] == "finished");
  // All that was computed is in the simulated parameters, as the servers count it.
  CHECK(report["parameter_examples"] == report["examples"]);
  CHECK(report["phases"].size() == 5);
  // Nobody measures memory here.
  CHECK(report["memory"]["server_peak_rss_bytes"] == std::vector<Json>(3));
  CHECK(report["memory"]["worker_peak_rss_bytes"] == std::vector<Json>(5));
  CHECK(report["simulation"]["bandwidth_bytes_per_second"] == 125000000);
  CHECK(report["simulation"]["step_seconds"] == 0.002);
  REQUIRE(SimulateJob(options) == 0);
  CHECK(ReportText(options) == first);
}

TEST_CASE("servers are as many as the job says where only workers are asked for", "[simulate]") {
  SimulateOptions options = Digits();
  options.workers = 4;
  REQUIRE(SimulateJob(options) == 0);
  CHECK(Json::parse(ReportText(options))["memory"]["server_peak_rss_bytes"].size() == 2);
}

TEST_CASE("a step time that is measured here is in the report", "[simulate]") {
  SimulateOptions options = Digits(GENERATE("digits", "digits_ist"));
  options.step_time = "measured";
  REQUIRE(SimulateJob(options) == 0);
  const double seconds = Json::parse(ReportText(options))["simulation"]["step_seconds"];
  CHECK(seconds > 1e-6);
  CHECK(seconds < 1);
}

TEST_CASE("wrong flags and wrong jobs end with code 2", "[simulate]") {
  SimulateOptions options = Digits();
  SECTION("bandwidth") { options.bandwidth = "fast"; }
  SECTION("latency") { options.latency = "-1ms"; }
  SECTION("step time") { options.step_time = "20"; }
  SECTION("speed spread") { options.speed_spread = 1.5; }
  SECTION("a slow worker that is faster") { options.slow_worker = 0.5; }
  SECTION("jitter") { options.step_jitter = -0.1; }
  SECTION("fail rate") { options.fail_rate = -1; }
  SECTION("restart") { options.restart_after = "soon"; }
  SECTION("cores") { options.cores_per_machine = -1; }
  SECTION("workers") { options.workers = -3; }
  SECTION("no workers") { options.workers = 0; }
  SECTION("no servers") { options.servers = 0; }
  SECTION("stub gradients have no step to measure") {
    options.stub_gradients = true;
    options.step_time = "measured";
  }
  SECTION("stub gradients reach no tau") {
    options.stub_gradients = true;
    options.overrides.push_back("codec={push: {threshold: {tau: 0.01}}}");
  }
  SECTION("a job that is not there") { options.job_path = "deploy/jobs/none.yaml"; }
  SECTION("more workers than there are neurons to deal") {
    options.overrides = {"method=ist"};
    options.workers = 129;
  }
  SECTION("a key that is not there") { options.overrides = {"train.epoch=3"}; }
  SECTION("a report that cannot be written") { options.report_path = "/nowhere/report.json"; }
  CHECK(SimulateJob(options) == 2);
}

TEST_CASE("a simulated job that fails ends with code 1, and its report says why", "[simulate]") {
  SimulateOptions options = Digits();
  options.fail_rate = 1e6;
  std::ofstream(options.report_path) << "{\"outcome\": \"of an earlier one\"}";
  CHECK(SimulateJob(options) == 1);
  const Json report = Json::parse(ReportText(options));
  CHECK(report["outcome"] == "failed");
  CHECK_THAT(report["failure"].get<std::string>(), Catch::Contains("all workers are gone"));
  CHECK(report["simulation"]["failures_per_hour"] == 1e6);
}

}  // namespace
}  // namespace tessera
