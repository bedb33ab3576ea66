#include "worker/worker_command.h"

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "common/base/log.h"
#include "common/base/process.h"

namespace tessera {

int WorkerCommand(int argc, char** argv, WorkerOptions options) {
  CLI::App app("Computes for one job.", "tessera-worker");
  app.set_version_flag("--version", std::string("tessera-worker ") + kVersion);
  app.add_option("--job", options.job_path, "the job file")->required();
  app.add_option("--rank", options.rank,
                 "the wanted place among the workers, from 0; default: the lowest free one")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--set", options.overrides,
                 "change a key of the job: a.b.c=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--coordinator", options.coordinator,
                 "HOST:PORT of server 0; default: its address in the job");
  LogLevel log_level = LogLevel::kInfo;
  app.add_option("--log-level", log_level, "the least that is logged: debug, info, warning or error")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, LogLevel>{{"debug", LogLevel::kDebug},
                                          {"info", LogLevel::kInfo},
                                          {"warning", LogLevel::kWarning},
                                          {"error", LogLevel::kError}}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  SetLogLevel(log_level);
  return RunWorker(options);
}

}  // namespace tessera
