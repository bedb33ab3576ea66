// tessera-server: owns slices of the parameters of one job.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/process_limits.h"
#include "common/base/uncaught.h"
#include "common/config/command_line.h"
#include "common/config/job_origin.h"
#include "server/server_process.h"

int main(int argc, char** argv) {
  // A file that grows beyond the limit of the shell is an error to report, not the end of the process.
  tessera::OutliveFileSizeLimit();
  tessera::LogUncaught("server");
  CLI::App app("Serves a slice of one job's parameters.", "tessera-server");
  app.set_version_flag("--version", std::string("tessera-server ") + tessera::kVersion);
  tessera::ServerOptions options;
  app.add_option("--job", options.job_path, "the job file")->required();
  app.add_option("--rank", options.rank, "which of the job's servers this is, from 0")->required();
  app.add_option("--set", options.overrides,
                 "change a key of the job: a.b.c=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  tessera::AddListen(&app, &options.listen,
                     "HOST:PORT to serve on; default: this rank's address in the job");
  tessera::AddCoordinator(&app, &options.coordinator);
  app.add_option("--address-file", options.address_file,
                 "write the address that was taken here, once reachable");
  tessera::AddMetrics(
      &app, &options.metrics, &options.metrics_linger,
      "serve metrics for Prometheus on HOST:PORT, over plain HTTP; port 0 takes a free one");
  tessera::AddPage(&app, &options.page);
  app.add_flag(
      "--no-takeover", options.no_takeover,
      "nobody will start this server again: it does not leave the job to wait for it; rank 0: keep "
      "nothing of the coordinator");
  app.add_option(
      "--report", options.report_path,
      "write the report here at the end, as JSON: the coordinator does, which is rank 0, "
      "or with cluster.coordinator.etcd whichever server is elected");
  // Hidden, as `tessera run` alone gives it.
  std::string origin;
  app.add_option("--origin", origin,
                 "what the report says of how the job was started; tessera run gives it")
      ->group("");
  tessera::LogLevel log_level = tessera::LogLevel::kInfo;
  tessera::AddLogLevel(&app, &log_level);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return tessera::EndOfParsing(app, error);
  }
  tessera::SetLogLevel(log_level);
  options.origin =
      tessera::OriginOf({argv, static_cast<size_t>(argc)}, options.job_path, options.overrides);
  if (!origin.empty()) {
    absl::StatusOr<tessera::v1::JobOrigin> told = tessera::OriginOfText(origin);
    if (!told.ok()) {
      std::fprintf(stderr, "tessera-server: --origin: %s\n",
                   std::string(told.status().message()).c_str());
      return 2;
    }
    options.origin = *std::move(told);
  }
  return tessera::RunServer(options);
}
