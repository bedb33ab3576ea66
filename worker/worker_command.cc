#include "worker/worker_command.h"

#include <CLI/CLI.hpp>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/process_limits.h"
#include "common/base/termination.h"
#include "common/config/command_line.h"
#include "common/config/job_reader.h"
#include "common/layout/tensor_layout.h"
#include "common/rpc/rpc_needs.h"
#include "common/rpc/transport.h"
#include "worker/layer_door.h"
#include "worker/worker_needs.h"
#include "worker/worker_process.h"

namespace tessera {
namespace {

int Refused(const absl::Status& why) {
  std::fprintf(stderr, "tessera-worker: %s\n", std::string(why.message()).c_str());
  return 2;
}

// The first signal lets the worker finish its exchange and leave; the second one ends it.
int Run(const WorkerOptions& options) {
  ConfigureAllocator();
  // Errors are said once, in our words; the environment may ask for gRPC's as well.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // The threads that a worker of any job needs, checked before the first thread, which ends the process where
  // there is none.
  absl::Status limits = CheckProcessLimits(WorkerNeeds({}));
  if (limits.ok()) limits = CheckPollStrategy();
  if (!limits.ok()) return Refused(limits);
  absl::Mutex mutex;
  WorkerProcess* running = nullptr;
  std::optional<int> outcome;  // once all is over but the tearing down, which a dead disk holds up
  const Termination termination([&](int count, int) {
    absl::MutexLock lock(&mutex);
    if (outcome && count > 1) _exit(*outcome);
    if (outcome) return;
    if (running == nullptr) {
      // Nobody knows of it yet, or any more.
      Log(LogLevel::kInfo, "worker: ended, signal received before it had joined");
      _exit(0);
    }
    running->OnSignal(count);
  });
  const JobOptions checks{/*check_files=*/true, /*check_security=*/true, /*check_restore=*/false};
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, checks);
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  if (IsOfTensors(reading.job.model())) {
    return Refused(absl::InvalidArgumentError(absl::StrCat(
        options.job_path,
        ": model.tensors: the model is the workers' own; start your program, which joins the job "
        "with the client library (docs/own_models.md)")));
  }
  WorkerProcess process(&options);
  if (const absl::Status status = process.Prepare(reading.job); !status.ok()) {
    return Refused(status);
  }
  {
    absl::MutexLock lock(&mutex);
    running = &process;
  }
  const absl::Status status = process.Train();
  absl::MutexLock lock(&mutex);
  if (status.ok() || process.has_left(status)) {
    Log(LogLevel::kInfo,
        process.left_early() ? "worker: ended, left before the job's end" : "worker: ended");
    outcome = 0;
  } else {
    Log(LogLevel::kError, absl::StrCat("worker: ended error=\"", status.message(), "\""));
    // Refused for what the job says: as wrong as if it had been found before.
    const bool is_wrong = absl::IsInvalidArgument(status) || absl::IsUnauthenticated(status) ||
                          absl::IsPermissionDenied(status);
    outcome = is_wrong && !process.joined() ? 2 : 1;
  }
  return *outcome;
}

}  // namespace

int WorkerCommand(int argc, char** argv, WorkerOptions options) {
  options.open_layers = OpenLayerDoor;
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
  return Run(options);
}

}  // namespace tessera
