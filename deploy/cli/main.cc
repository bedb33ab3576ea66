// The `tessera` command.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "common/base/process.h"
#include "deploy/cli/check_command.h"
#include "deploy/cli/run_command.h"
#include "deploy/cli/status_command.h"

namespace tessera {
namespace {

// Commands of the design that this build does not have yet: refused by name, with what to use
// instead.
struct LaterCommand {
  const char* name;
  const char* why;
};
constexpr LaterCommand kLaterCommands[] = {
    {"simulate", "the simulator comes with the consistency work"},
    {"plan", "traffic prediction comes later; docs/methods.md has the formulas"},
    {"checkpoint", "checkpoints come with the reliability work"},
    {"export", "checkpoints come with the reliability work"},
    {"eval", "checkpoints come with the reliability work"},
    {"doctor",
     "the preflight comes with the reliability work; `tessera status` names who is missing"},
};

void AddSet(CLI::App* command, std::vector<std::string>* overrides) {
  command->add_option("--set", *overrides, "change a key of the job: a.b.c=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

int Main(int argc, char** argv) {
  CLI::App app("Trains neural networks through sharded parameter servers.", "tessera");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tessera ") + kVersion);

  RunOptions run;
  CLI::App* run_command =
      app.add_subcommand("run", "train a job with servers and workers on this machine");
  run_command->add_option("JOB", run.job_path, "the job file")->required();
  AddSet(run_command, &run.overrides);
  run_command->add_option("--report", run.report_path, "write the report here, as JSON");
  run_command->add_option("--logs", run.log_directory, "keep the processes' logs in this folder");
  run_command->add_flag("--quiet", run.quiet, "no progress and no table");

  CheckOptions check;
  CLI::App* check_command =
      app.add_subcommand("check", "validate a job file and print it with all defaults");
  check_command->add_option("JOB", check.job_path, "the job file")->required();
  AddSet(check_command, &check.overrides);

  StatusOptions status;
  CLI::App* status_command = app.add_subcommand("status", "what a running job is doing");
  status_command
      ->add_option("ADDRESS", status.address,
                   "HOST:PORT of server 0, or of any server for its own share")
      ->required();
  status_command->add_flag("--watch", status.watch, "redraw until the job ends");
  status_command->add_flag("--json", status.json, "as JSON, one object per line");

  for (const LaterCommand& later : kLaterCommands) {
    CLI::App* command = app.add_subcommand(later.name, std::string("(later) ") + later.why);
    command->allow_extras();
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (const LaterCommand& later : kLaterCommands) {
    if (!app.got_subcommand(later.name)) continue;
    std::fprintf(stderr, "tessera: %s is not in this build: %s\n", later.name, later.why);
    return 2;
  }
  if (app.got_subcommand(run_command)) return RunJob(run);
  if (app.got_subcommand(check_command)) return CheckJobFile(check);
  return ShowStatus(status);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
