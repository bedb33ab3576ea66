#include "common/config/command_line.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// What is said of a command line; "" where nothing is wrong with it.
std::string Said(const std::vector<std::string>& words) {
  CLI::App app("Trains.", "tessera");
  app.require_subcommand(1);
  CLI::App* run = app.add_subcommand("run", "train");
  app.add_subcommand("check", "validate");
  std::string job, report, listen;
  int workers = 0;
  LogLevel level = LogLevel::kInfo;
  absl::Duration linger;
  run->add_option("JOB", job, "the job file")->required();
  run->add_option("--report", report, "where to");
  run->add_option("--workers", workers, "how many");
  AddListen(run, &listen, "where");
  std::string metrics;
  AddMetrics(run, &metrics, &linger, "where");
  AddLogLevel(run, &level);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    return ParseErrorLine(app, error);
  }
  return level == LogLevel::kInfo ? "" : "other level";
}

TEST_CASE("how long metrics linger is a time, and wants metrics", "[command_line]") {
  const auto linger_of = [](const std::vector<std::string>& words) {
    CLI::App app("Serves.", "tessera-server");
    std::string metrics;
    absl::Duration linger;
    AddMetrics(&app, &metrics, &linger, "where");
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    return linger;
  };
  CHECK(linger_of({}) == kMetricsLingerDefault);
  CHECK(linger_of({"--metrics", "a:1"}) == absl::Seconds(15));
  CHECK(linger_of({"--metrics", "a:1", "--metrics-linger", "1m30s"}) == absl::Seconds(90));
  CHECK(linger_of({"--metrics-linger", "0s", "--metrics", "a:1"}) == absl::ZeroDuration());
  CHECK(Said({"run", "a", "--metrics", "a:1", "--metrics-linger", "1h"}).empty());
  for (const char* text : {"15", "-1s", "2h", "inf", "", "soon"}) {
    INFO(text);
    CHECK(Said({"run", "a", "--metrics", "a:1", "--metrics-linger", text}) ==
          absl::StrCat("tessera run: --metrics-linger: got \"", text,
                       "\", want a time from 0s to 1h, such as 15s; see tessera run --help"));
  }
  CHECK(Said({"run", "a", "--metrics-linger", "1s"}) ==
        "tessera run: --metrics-linger requires --metrics; see tessera run --help");
  CHECK(Said({"run", "a", "--metrics", ""}).find("want HOST:PORT") != std::string::npos);
}

TEST_CASE("a wrong command is told with the one that was meant", "[command_line]") {
  CHECK(Said({"chek", "job.yaml"}) ==
        "tessera: unknown subcommand \"chek\"; did you mean \"check\"? See tessera --help");
  CHECK(Said({"zzz"}) == "tessera: unknown subcommand \"zzz\"; see tessera --help");
  CHECK(Said({}) == "tessera: no subcommand, want run, check; see tessera --help");
}

TEST_CASE("a wrong flag is told with the one that was meant", "[command_line]") {
  const std::string want =
      "tessera run: unknown flag \"--repot\"; did you mean \"--report\"? See tessera run --help";
  CHECK(Said({"run", "job.yaml", "--repot", "r.json"}) == want);
  CHECK(Said({"run", "--repot", "r.json", "job.yaml"}) == want);
  CHECK(Said({"run", "job.yaml", "--zzz"}) ==
        "tessera run: unknown flag \"--zzz\"; see tessera run --help");
  CHECK(Said({"--repot", "run", "job.yaml"}) ==
        "tessera run: unknown flag \"--repot\"; did you mean \"--report\"? See tessera run --help");
}

TEST_CASE("what is missing, too much, or no value of its flag, is named", "[command_line]") {
  CHECK(Said({"run"}) == "tessera run: JOB is required; see tessera run --help");
  CHECK(Said({"run", "a.yaml", "b.yaml"}) ==
        "tessera run: got \"b.yaml\" as well, want no more; see tessera run --help");
  CHECK(Said({"run", "a.yaml", "--workers", "four"}) ==
        "tessera run: --workers = four: want a number; see tessera run --help");
  CHECK(Said({"run", "a.yaml", "--workers", "99999999999"}) ==
        "tessera run: --workers = 99999999999: want a smaller number; see tessera run --help");
  CHECK(Said({"run", "a.yaml", "--workers", "-99999999999"}) ==
        "tessera run: --workers = -99999999999: want a larger number; see tessera run --help");
  CHECK(Said({"run", "a.yaml", "--workers", "1.5"}) ==
        "tessera run: --workers = 1.5: want a whole number, in digits; see tessera run --help");
  CHECK(Said({"run", "a.yaml", "--log-level", "loud"}) ==
        "tessera run: --log-level: got \"loud\", want debug, info, warning or error; see tessera "
        "run --help");
  CHECK(Said({"run", "a.yaml", "--log-level", "debug"}) == "other level");
  CHECK(Said({"run", "a.yaml"}) == "");
  for (const char* wrong : {"foo", "", "10.0.0.1", "10.0.0.1:65536", "::1:7000"}) {
    CHECK(Said({"run", "a.yaml", "--listen", wrong}) ==
          absl::StrCat("tessera run: --listen: got \"", wrong,
                       "\", want host:port with a port in [0, 65535], an IPv6 address in brackets; "
                       "see tessera run --help"));
  }
  for (const char* right : {"127.0.0.1:0", "0.0.0.0:7000", "[::1]:7000", "host:65535"}) {
    CHECK(Said({"run", "a.yaml", "--listen", right}) == "");
  }
}

}  // namespace
}  // namespace tessera
