// The `tessera` command.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/compute_environment.h"
#include "common/base/process.h"
#include "common/base/process_limits.h"
#include "common/base/termination.h"
#include "common/base/uncaught.h"
#include "common/config/command_line.h"
#include "common/config/job_origin.h"
#include "common/rpc/rpc_needs.h"
#include "deploy/cli/check_command.h"
#include "deploy/cli/checkpoint_command.h"
#include "deploy/cli/curves/history_command.h"
#include "deploy/cli/curves/plot_command.h"
#include "deploy/cli/doctor_command.h"
#include "deploy/cli/end_command.h"
#include "deploy/cli/eval_command.h"
#include "deploy/cli/export_command.h"
#include "deploy/cli/help/help_command.h"
#include "deploy/cli/import/import_command.h"
#include "deploy/cli/init/init_command.h"
#include "deploy/cli/launch/attach_command.h"
#include "deploy/cli/launch/launch_command.h"
#include "deploy/cli/launch/slurm_command.h"
#include "deploy/cli/plan/plan_command.h"
#include "deploy/cli/run/run_command.h"
#include "deploy/cli/sample/sample_command.h"
#include "deploy/cli/simulate_command.h"
#include "deploy/cli/status_command.h"

namespace tessera {
namespace {

// Adds the security flags of commands that call a running job without its job file.
void AddSecurity(CLI::App* command, const char* token, SecurityFiles* files) {
  command->add_option("--authority", files->authority,
                      "TLS: certificates whose signature on the server's is believed (PEM)");
  command->add_option("--certificate", files->certificate,
                      "TLS: shown to servers that ask for one (PEM)");
  command->add_option("--private-key", files->private_key, "TLS: the certificate's (PEM)");
  command->add_option("--token-file", files->token_file, token);
}

void AddSet(CLI::App* command, std::vector<std::string>* overrides) {
  command->add_option("--set", *overrides, "change a key of the job: a.b.c=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

constexpr char kTensorboard[] =
    "append the evaluations to an event file for TensorBoard in this folder";

// Refuses an empty path, which would be taken for none.
std::string CheckNamed(const std::string& path) {
  return path.empty() ? "is empty, want a path" : "";
}

// Adds `tessera simulate` and its flags.
CLI::App* AddSimulate(CLI::App* app, SimulateOptions* options) {
  CLI::App* command = app->add_subcommand(
      "simulate", "train a job on simulated machines: real mathematics, simulated time");
  command->add_option("JOB", options->job_path, "the job file")->required()->check(CheckNamed);
  AddSet(command, &options->overrides);
  command->add_option("--workers", options->workers, "instead of cluster.workers, at most 20,000");
  command->add_option("--servers", options->servers, "instead of cluster.servers, at most 256");
  command->add_option("--bandwidth", options->bandwidth,
                      "of each machine's link, each way: 1Gbit, 100MB; 0: no limit");
  command->add_option("--latency", options->latency, "from any machine to any other: 20ms");
  command->add_option(
      "--step-time", options->step_time,
      "of one minibatch on the whole model: 20ms, or measured here (the default); one on "
      "a subnet takes its share of the multiply-adds");
  command->add_option("--speed-spread", options->speed_spread,
                      "worker k's steps take step-time x (1 +- spread), drawn once");
  command->add_option("--slow-worker", options->slow_worker,
                      "worker 0's steps take so many times as long: 3");
  command->add_option("--step-jitter", options->step_jitter,
                      "each step again takes x (1 +- jitter)");
  command->add_option("--fail-rate", options->fail_rate, "crashes per worker and hour");
  command->add_option("--restart-after", options->restart_after,
                      "a new worker wants a crashed one's place, which is free once its lease is "
                      "over: 30s, or never (the default)");
  command->add_option("--machines", options->machines,
                      "deal the processes to so many machines; 0: each has its own");
  command
      ->add_option("--server-machines", options->server_machines,
                   "with --machines: the machine of each server, from 0 on, with commas between "
                   "them; without it servers begin at 0, as workers do")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--cores-per-machine", options->cores_per_machine, "0: as many as wanted");
  command->add_option("--loopback-bandwidth", options->loopback_bandwidth,
                      "between processes of one machine, for each core");
  command->add_option("--message-cost", options->message_cost,
                      "a core's work for each message between processes of one machine: 60us");
  command->add_option("--server-rate", options->server_rate,
                      "parameters that a server folds per second; 0: it takes no time");
  command->add_flag("--stub-gradients", options->stub_gradients,
                    "no mathematics: only times and traffic mean something; wants a --step-time");
  command->add_option("--report", options->report_path, "write the report here, as JSON")
      ->check(CheckNamed);
  command->add_flag("--quiet", options->quiet, "no progress and no table");
  return command;
}

// Adds `tessera plan` and its flags.
CLI::App* AddPlan(CLI::App* app, PlanOptions* options) {
  CLI::App* command = app->add_subcommand(
      "plan",
      "predict each method's traffic and time on machines that are not here, without training");
  command->add_option("JOB", options->job_path, "the job file")->required()->check(CheckNamed);
  AddSet(command, &options->overrides);
  command
      ->add_option("--nodes", options->nodes,
                   "so many workers, at most 20,000, each on a node of its own")
      ->required();
  command
      ->add_option("--bandwidth", options->bandwidth,
                   "of each node's link, each way: 10Gbit, 100MB; 0: no limit")
      ->required();
  command->add_option("--servers", options->servers,
                      "instead of cluster.servers, at most 256; each on a node of its own");
  command->add_option("--latency", options->latency, "from any node to any other: 200us");
  command->add_option("--step-time", options->step_time,
                      "of one minibatch on the whole model: 20ms, or measured here (the default)");
  command->add_option("--local-steps", options->local_steps, "of all methods that have them");
  command->add_option("--utilisation", options->utilisation,
                      "say with how many local steps each method computes for this share of the "
                      "time: 0.75");
  command->add_option("--server-rate", options->server_rate,
                      "parameters that a server folds per second: 4GB; 0: it takes no time");
  command->add_option("--loopback-bandwidth", options->loopback_bandwidth,
                      "between a worker and the server beside it: 1GB; 0: no limit");
  command->add_flag("--json", options->json, "as JSON");
  return command;
}

// Adds `tessera sample` and its flags.
CLI::App* AddSample(CLI::App* app, SampleOptions* options) {
  CLI::App* command =
      app->add_subcommand("sample", "write text with a checkpoint's model, as it comes to be");
  command
      ->add_option("CKPT", options->checkpoint,
                   "a checkpoint's folder, or the one that has them: the newest is taken")
      ->required()
      ->check(CheckNamed);
  command->add_option(
      "--prompt", options->prompt,
      "the text to go on with; of a model that was trained on numbered tokens, their "
      "numbers. None: a line's end");
  command->add_option("--tokens", options->tokens, "how many to write, at most 1,000,000 (200)");
  command->add_option("--temperature", options->temperature,
                      "below 1 what is likely is drawn more often than the model says, above 1 "
                      "less; 0: always the likeliest (0.8)");
  command->add_option("--seed", options->seed, "the same seed gives the same text (1)");
  command->add_option("--device", options->device, "cpu, cuda or cuda:N (cpu)");
  command->add_option("--threads", options->threads, "of a cpu (1)");
  return command;
}

// Adds `tessera history` and its flags.
CLI::App* AddHistory(CLI::App* app, HistoryOptions* options) {
  CLI::App* command = app->add_subcommand(
      "history", "a job's evaluations as a table, CSV, JSON or an event file of TensorBoard");
  command
      ->add_option("SOURCE", options->source,
                   "a report, or HOST:PORT of server 0 of a job that runs")
      ->required()
      ->check(CheckNamed);
  CLI::Option* const csv = command->add_flag("--csv", options->csv, "as CSV, with a line of names");
  command->add_flag("--json", options->json, "as one JSON object")->excludes(csv);
  command->add_option("--tensorboard", options->tensorboard, kTensorboard)->check(CheckNamed);
  AddSecurity(command, "a token of the job, of whatever role", &options->security);
  return command;
}

// Adds `tessera plot` and its flags.
CLI::App* AddPlot(CLI::App* app, PlotOptions* options) {
  CLI::App* command =
      app->add_subcommand("plot", "draw the curves of jobs, from their reports, as SVG");
  command->add_option("REPORT", options->reports, "reports, at most 24 in a picture")
      ->check(CheckNamed);
  command
      ->add_option("--table", options->table,
                   "in place of reports a CSV file: titles, then x and a number for each line")
      ->check(CheckNamed);
  command->add_option("--x", options->x,
                      "seconds (the default), examples, bytes or steps; of a table x's title");
  command->add_option("--y", options->y,
                      "accuracy (the default), loss or perplexity; of a table y's title");
  command->add_flag("--log-x", options->log_x, "a logarithmic x: what is 0 or less is left out");
  command->add_flag("--log-y", options->log_y, "a logarithmic y: what is 0 or less is left out");
  command
      ->add_option("--label", options->labels,
                   "what the legend calls a line; once for each, in their order")
      ->allow_extra_args(false);
  command->add_option("--out", options->out_path, "the file to write; stdout without it")
      ->check(CheckNamed);
  return command;
}

// Adds `tessera import` and its flags.
CLI::App* AddImport(CLI::App* app, ImportOptions* options) {
  CLI::App* command =
      app->add_subcommand("import", "make another program's model the begin of a job of layers");
  command
      ->add_option(
          "MODEL", options->model,
          "a safetensors file, a checkpoint's folder, or the one that has checkpoints: the "
          "newest is taken")
      ->required()
      ->check(CheckNamed);
  command
      ->add_option("OUT", options->out_path,
                   "the file to write, for model.init; none: the one that the job names there")
      ->check(CheckNamed);
  command->add_option("--layers", options->job_path, "the job whose layers the tensors are of")
      ->required()
      ->check(CheckNamed);
  AddSet(command, &options->overrides);
  command
      ->add_option("--map", options->renamings,
                   "which module of the model is which layer: fc1=layers.0; may be repeated")
      ->type_name("MODULE=LAYER")
      ->allow_extra_args(false);
  command->add_flag("--quiet", options->quiet, "say nothing where all is well");
  return command;
}

// Adds `tessera init` and its flags.
CLI::App* AddInit(CLI::App* app, InitOptions* options) {
  CLI::App* command =
      app->add_subcommand("init", "look at a data set and write a commented job file for it");
  command->add_option("DATA", options->paths, "a folder with the data, or its files")
      ->required()
      ->check(CheckNamed);
  command->add_option("--out", options->out_path, "the job file to write (job.yaml)")
      ->check(CheckNamed);
  command->add_flag("--force", options->force, "replace a job file that is there");
  return command;
}

// Adds `tessera drain` or `tessera stop`, which differ in one call.
CLI::App* AddEnd(CLI::App* app, const char* name, const char* does, EndOptions* options) {
  CLI::App* command = app->add_subcommand(name, does);
  command->add_option("ADDRESS", options->address, "HOST:PORT of server 0, or of the elected one")
      ->required();
  command->add_option("--reason", options->reason, "for the logs");
  command->add_flag("--quiet", options->quiet, "say nothing where all is well");
  AddSecurity(command, "a token of the role operator", &options->security);
  return command;
}

// Adds a command that trains a job, and its flags. `logs`: where the logs go.
CLI::App* AddRun(CLI::App* app, const char* name, const char* does, const char* logs,
                 RunOptions* options) {
  CLI::App* command = app->add_subcommand(name, does);
  command->add_option("JOB", options->job_path, "the job file")->required()->check(CheckNamed);
  AddSet(command, &options->overrides);
  command->add_option("--report", options->report_path, "write the report here, as JSON")
      ->check(CheckNamed);
  command
      ->add_option("--logs", options->log_directory,
                   std::string("keep the processes' logs in ") + logs)
      ->check(CheckNamed);
  command->add_option("--tensorboard", options->tensorboard, kTensorboard)->check(CheckNamed);
  AddPage(command, &options->page);
  AddMetrics(command, &options->metrics, &options->metrics_linger,
             "serve the job's metrics for Prometheus on HOST:PORT; port 0 takes a free one");
  command
      ->add_option("--worker", options->worker_command,
                   "a shell command that each worker is, such as \"python3 train.py\", in place of "
                   "tessera-worker; TESSERA_JOB, TESSERA_RANK and TESSERA_COORDINATOR tell it what "
                   "to join")
      ->check([](const std::string& text) {
        return text.empty() ? "got nothing, want a command" : "";
      });
  command->add_flag("--quiet", options->quiet, "no progress and no table");
  return command;
}

// Adds `tessera launch` and its flags; `slurm` gets those that only Slurm's jobs have. `is_slurm` is set where Slurm
// starts the job, and not ssh.
CLI::App* AddLaunch(CLI::App* app, LaunchOptions* options, SlurmLaunchOptions* slurm,
                    bool* is_slurm) {
  CLI::App* command = AddRun(app, "launch", "train a job on other machines, which ssh reaches",
                             "this folder, below their hosts' names", &options->run);
  command
      ->add_option("--hosts", options->hosts,
                   "the machines: HOST, USER@HOST or HOST:PORT, with commas between them")
      ->check(CheckNamed);
  command
      ->add_option("--hosts-file", options->hosts_file,
                   "the same, one a line, with address=, directory=, servers= and workers= of each")
      ->check(CheckNamed);
  command->add_option("--identity", options->ssh.identity, "the private key file for ssh")
      ->check(CheckNamed);
  command
      ->add_option("--ssh-option", options->ssh.options,
                   "an option for ssh, such as StrictHostKeyChecking=accept-new; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--directory", options->directory,
                   "where bundle and jobs lie on the hosts (~/.cache/tessera)")
      ->check(CheckNamed);
  command
      ->add_option("--bundle", options->bundle,
                   "the folder of the bundle that the hosts get; without it this program's own")
      ->check(CheckNamed);
  command->add_option("--port", options->port,
                      "the first port for servers whose addresses the job does not list (7000)");
  command->add_option("--grace", options->grace,
                      "how long processes go on without a connection to this command (60s)");
  command->add_option("--bandwidth", options->bandwidth,
                      "what a host sends and receives a second, for keys that say auto (10Gbit)");
  command->add_flag("--copy-data", options->copies_data,
                    "copy the job's data to hosts with workers that do not have it");
  command->add_flag("--check", options->only_checks, "only check the hosts, and start nothing");
  CLI::Option* const by_slurm =
      command->add_flag("--slurm", *is_slurm,
                        "submit the job to Slurm; programs and job lie where all nodes see them");
  by_slurm->excludes("--hosts")->excludes("--hosts-file")->excludes("--check");
  command->add_flag("--print", slurm->only_prints, "with --slurm: only print the batch script")
      ->needs(by_slurm);
  command->add_option("--nodes", slurm->nodes, "with --slurm: so many; without it one a worker")
      ->needs(by_slurm)
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--sbatch", slurm->sbatch,
                   "with --slurm: an option of sbatch, such as --partition=gpu; may be repeated")
      ->type_name("OPTION")
      ->needs(by_slurm)
      ->allow_extra_args(false);
  return command;
}

// Adds `tessera attach`, which help does not list: `tessera launch` calls it on other machines.
CLI::App* AddAttach(CLI::App* app, AttachOptions* options) {
  CLI::App* command = app->add_subcommand("attach", "the other end of tessera launch")->group("");
  command->add_option("--folder", options->folder)->required()->check(CheckNamed);
  command->add_option("--name", options->name);
  command->add_option("--from", options->log_begin);
  command->add_option("--grace", options->grace_seconds);
  command->add_option("COMMAND", options->command);
  return command;
}

// The threads of a command, beside those of the processes that it starts and of the threads that compute: for
// signals, and a status.
ProcessNeeds NeedsOfCommand(bool calls_servers) {
  constexpr int kOwnThreads = 4;
  if (calls_servers) return RpcNeeds(kOwnThreads, /*connections=*/2);
  return {kOwnThreads, /*files=*/16};
}

// Declares all commands, and runs the one that was named. Each command is a function of its options that returns
// the exit code.
int Main(int argc, char** argv) {
  CLI::App app("Trains neural networks through sharded parameter servers.", "tessera");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tessera ") + kVersion);

  RunOptions run;
  run.program = argv[0];
  CLI::App* run_command = AddRun(
      &app, "run", "train a job with servers and workers on this machine", "this folder", &run);
  LaunchOptions launch;
  launch.run.program = argv[0];
  SlurmLaunchOptions slurm;
  bool is_slurm = false;
  CLI::App* launch_command = AddLaunch(&app, &launch, &slurm, &is_slurm);
  AttachOptions attach;
  CLI::App* attach_command = AddAttach(&app, &attach);

  CheckOptions check;
  CLI::App* check_command =
      app.add_subcommand("check", "validate a job file and print it with all defaults");
  check_command->add_option("JOB", check.job_path, "the job file")->required()->check(CheckNamed);
  AddSet(check_command, &check.overrides);
  check_command->add_flag("--json", check.json, "as one JSON object, errors included");

  StatusOptions status;
  CLI::App* status_command = app.add_subcommand("status", "what a running job is doing");
  status_command
      ->add_option("ADDRESS", status.address,
                   "HOST:PORT of server 0, or of any server for its own share")
      ->required();
  status_command->add_flag("--watch", status.watch, "redraw until the job ends");
  status_command->add_flag("--json", status.json, "as JSON, one object per line");
  status_command->add_option("--tensorboard", status.tensorboard, kTensorboard)->check(CheckNamed);
  CLI::Option* const events = status_command->add_flag(
      "--events", status.events, "what has happened in the job, a line for each event");
  status_command
      ->add_flag("--follow", status.follow, "with --events: and what happens until the job ends")
      ->needs(events);
  events->excludes("--watch");
  AddSecurity(status_command, "a token of the job, of whatever role", &status.security);

  ExportOptions exported;
  CLI::App* export_command =
      app.add_subcommand("export", "write a checkpoint's model to one safetensors file");
  export_command
      ->add_option("CKPT", exported.checkpoint,
                   "a checkpoint's folder, or the one that has them: the newest is taken")
      ->required()
      ->check(CheckNamed);
  export_command->add_option("OUT", exported.out_path, "the file to write")
      ->required()
      ->check(CheckNamed);
  export_command
      ->add_option(
          "--job", exported.job_path,
          "a job with the training rows, where the checkpoint lacks the constants of batch "
          "norms")
      ->check(CheckNamed);
  AddSet(export_command, &exported.overrides);
  export_command->add_flag("--quiet", exported.quiet, "say nothing where all is well");

  DoctorOptions doctor;
  CLI::App* doctor_command =
      app.add_subcommand("doctor", "is all there that a job needs? each finding with what to do");
  doctor_command->add_option("JOB", doctor.job_path, "the job file")->required()->check(CheckNamed);
  AddSet(doctor_command, &doctor.overrides);
  doctor_command->add_flag("--no-data", doctor.no_data, "this machine has servers only");
  doctor_command->add_flag("--json", doctor.json, "as one JSON object, at the end");

  CheckpointOptions checkpoint;
  CLI::App* checkpoint_command =
      app.add_subcommand("checkpoint", "have a running job write a checkpoint now");
  checkpoint_command->add_option("ADDRESS", checkpoint.address, "HOST:PORT of server 0")
      ->required();
  checkpoint_command->add_flag("--quiet", checkpoint.quiet, "say nothing where all is well");
  checkpoint_command->add_flag("--json", checkpoint.json, "as one JSON object");
  AddSecurity(checkpoint_command, "a token of the role operator", &checkpoint.security);

  EndOptions drain;
  CLI::App* drain_command =
      AddEnd(&app, "drain", "have a running job finish its exchange, evaluate and end", &drain);
  EndOptions stop;
  CLI::App* stop_command = AddEnd(&app, "stop", "end a running job at once, as failed", &stop);

  EvalOptions eval;
  CLI::App* eval_command =
      app.add_subcommand("eval", "score a checkpoint's model on a job's test data");
  eval_command
      ->add_option("CKPT", eval.checkpoint,
                   "a checkpoint's folder, or the one that has them: the newest is taken")
      ->required()
      ->check(CheckNamed);
  eval_command->add_option("JOB", eval.job_path, "the job file")->required()->check(CheckNamed);
  AddSet(eval_command, &eval.overrides);
  eval_command->add_flag("--json", eval.json, "as one JSON object");

  SampleOptions sample;
  CLI::App* sample_command = AddSample(&app, &sample);

  SimulateOptions simulate;
  CLI::App* simulate_command = AddSimulate(&app, &simulate);

  PlanOptions plan;
  CLI::App* plan_command = AddPlan(&app, &plan);

  HistoryOptions history;
  CLI::App* history_command = AddHistory(&app, &history);
  PlotOptions plot;
  CLI::App* plot_command = AddPlot(&app, &plot);
  ImportOptions imported;
  CLI::App* import_command = AddImport(&app, &imported);
  InitOptions init;
  CLI::App* init_command = AddInit(&app, &init);
  HelpOptions help;
  CLI::App* help_command = app.add_subcommand("help", "show a page of the documentation");
  help_command->add_option("TOPIC", help.topic, "a page or a command; none: the list of pages");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return EndOfParsing(app, error);
  }
  const bool calls_servers =
      app.got_subcommand(run_command) || app.got_subcommand(launch_command) ||
      app.got_subcommand(status_command) || app.got_subcommand(checkpoint_command) ||
      app.got_subcommand(drain_command) || app.got_subcommand(stop_command) ||
      app.got_subcommand(doctor_command) || app.got_subcommand(history_command);
  absl::Status limits = CheckProcessLimits(NeedsOfCommand(calls_servers));
  if (limits.ok() && calls_servers) limits = CheckPollStrategy();
  if (!limits.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(limits.message()).c_str());
    return 2;
  }
  if (app.got_subcommand(run_command)) {
    run.origin = OriginOf({argv, static_cast<size_t>(argc)}, run.job_path, run.overrides);
    return RunJob(run);
  }
  if (app.got_subcommand(launch_command)) {
    launch.run.origin =
        OriginOf({argv, static_cast<size_t>(argc)}, launch.run.job_path, launch.run.overrides);
    if (!is_slurm) return LaunchJob(launch);
    slurm.run = launch.run;
    slurm.bundle = launch.bundle;
    slurm.port = launch.port;
    slurm.bandwidth = launch.bandwidth;
    return SubmitToSlurm(slurm);
  }
  // The exit code tells how another process has ended: this one does not end by its signal.
  if (app.got_subcommand(attach_command)) std::exit(Attach(attach));
  if (app.got_subcommand(check_command)) return CheckJobFile(check);
  if (app.got_subcommand(export_command)) return ExportCheckpoint(exported);
  if (app.got_subcommand(checkpoint_command)) return RequestCheckpoint(checkpoint);
  if (app.got_subcommand(drain_command)) return RequestDrain(drain);
  if (app.got_subcommand(stop_command)) return RequestStop(stop);
  if (app.got_subcommand(doctor_command)) return ExamineJob(doctor);
  if (app.got_subcommand(eval_command)) return EvaluateCheckpoint(eval);
  if (app.got_subcommand(sample_command)) return WriteSample(sample);
  if (app.got_subcommand(simulate_command)) return SimulateJob(simulate);
  if (app.got_subcommand(plan_command)) return PlanJob(plan);
  if (app.got_subcommand(history_command)) return ShowHistory(history);
  if (app.got_subcommand(plot_command)) return PlotReports(plot);
  if (app.got_subcommand(import_command)) return ImportModel(imported);
  if (app.got_subcommand(init_command)) return InitJob(init);
  if (app.got_subcommand(help_command)) return ShowHelp(help);
  return ShowStatus(status);
}

// Whether the command computes in this process. The workers that `run` starts see to their environment themselves, and
// those of the user's own (--worker) are to have the one that the user gave.
bool Computes(int argc, char** argv) {
  if (argc < 2) return false;
  const std::string command = argv[1];
  return command == "eval" || command == "export" || command == "sample" || command == "simulate" ||
         command == "plan" || command == "doctor";
}

// Opens /dev/null for standard streams that are closed: what is opened next would take the place of a stdout that
// is closed, and get all that is printed.
void HoldStandardStreams() {
  int held = 0;
  while (held >= 0 && held <= STDERR_FILENO) held = open("/dev/null", O_RDONLY);
  if (held >= 0) close(held);
}

// Whether stdout is closed, or was when this process began (HoldStandardStreams).
bool IsStdoutClosed() {
  const int flags = fcntl(STDOUT_FILENO, F_GETFL);
  return flags < 0 || (flags & O_ACCMODE) == O_RDONLY;
}

// Ends with 1 where stdout could not be written, as a script had better not take an empty file for a result. Who
// stopped reading has had enough: that is no error.
int CheckOutput(int exit_code) {
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  pollfd reader{STDOUT_FILENO, POLLOUT, 0};
  const bool has_no_reader = poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0;
  if (is_written || has_no_reader || exit_code != 0) return exit_code;
  std::fprintf(stderr, "tessera: stdout: %s\n",
               IsStdoutClosed() ? "is closed; give it a place, if only > /dev/null"
                                : "cannot be written; is there room on its disk?");
  return 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::HoldStandardStreams();
  tessera::OutliveFileSizeLimit();
  // Errors are said once, in our words; the environment may ask for gRPC's as well.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  if (tessera::Computes(argc, argv)) tessera::StartInComputeEnvironment(argv);
  tessera::LogUncaught("tessera");
  const int exit_code = tessera::CheckOutput(tessera::Main(argc, argv));
  // A shell's loop ends with a command that a signal has ended, and not with one that has that exit code.
  if (exit_code > tessera::kSignalExitCode) {
    tessera::EndBySignal(exit_code - tessera::kSignalExitCode);
  }
  return exit_code;
}
