#include "worker/worker_command.h"

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/config/command_line.h"

namespace tessera {

int WorkerCommand(int argc, char** argv, WorkerOptions options) {
  CLI::App app("Computes for one job.", "tessera-worker");
  app.set_version_flag("--version", std::string("tessera-worker ") + kVersion);
  app.add_option("--job", options.job_path, "the job file")->required();
  app.add_option("--rank", options.rank,
                 "the wanted place among the workers, from 0; default: the lowest free one")
      ->check([](const std::string& text) {
        return absl::StartsWith(text, "-") ? absl::StrCat("got ", text, ", want 0 or more") : "";
      });
  app.add_option("--set", options.overrides,
                 "change a key of the job: a.b.c=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  AddListen(&app, &options.listen,
            "host:port at which the other workers reach this one, where workers send each other "
            "activations; default: a free port of this machine, for its own workers alone");
  AddCoordinator(&app, &options.coordinator);
  LogLevel log_level = LogLevel::kInfo;
  AddLogLevel(&app, &log_level);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return EndOfParsing(app, error);
  }
  SetLogLevel(log_level);
  return RunWorker(options);
}

}  // namespace tessera
