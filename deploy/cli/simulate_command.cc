#include "deploy/cli/simulate_command.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/output_file.h"
#include "common/base/steady_clock.h"
#include "common/base/termination.h"
#include "common/config/job_output.h"
#include "common/config/job_reader.h"
#include "common/config/quantity.h"
#include "common/layout/shard_map.h"
#include "common/method/recipe.h"
#include "common/method/train_rows.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/fetch_advice.h"
#include "deploy/cli/flag_reader.h"
#include "deploy/cli/progress.h"
#include "deploy/cli/tensor_refusal.h"
#include "deploy/cli/terminal.h"
#include "deploy/simulate/simulation.h"
#include "deploy/simulate/step_time.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

// Above all levels. The only error that the simulated processes log is the job's failure, which is said here.
constexpr LogLevel kNothing = static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1);
constexpr absl::Duration kShowInterval = absl::Milliseconds(100);
// Events between two looks at the clock and at signals.
constexpr int64_t kEventsAtOnce = 200;

// Workers of one simulated machine that compute at the same time, as far as this machine can.
int BusyCores(const SimulationOptions& options, const v1::Job& job) {
  if (options.machines == 0 || options.cores_per_machine == 0) return 1;
  const auto workers = static_cast<int>(job.cluster().workers());
  const int beside = (workers + options.machines - 1) / options.machines;
  const int here = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min({options.cores_per_machine, beside, here}));
}

// Reads the flags; errors are collected, so that all are told at once.
SimulationOptions ReadFlags(const SimulateOptions& in, FlagReader* flags) {
  SimulationOptions out;
  flags->Between("workers", in.workers, 1, kSimulatedWorkersMax);
  flags->Between("servers", in.servers, 1, kServersMax);
  out.machines = flags->Count("machines", in.machines);
  out.server_machines = in.server_machines;
  out.cores_per_machine = flags->Count("cores-per-machine", in.cores_per_machine);
  out.bandwidth = flags->Bandwidth("bandwidth", in.bandwidth);
  out.loopback_bandwidth = flags->Bandwidth("loopback-bandwidth", in.loopback_bandwidth);
  out.message_cost = flags->Duration("message-cost", in.message_cost, "");
  out.server_rate = flags->Bandwidth("server-rate", in.server_rate);
  out.latency = flags->Duration("latency", in.latency, "");
  if (in.step_time != "measured") {
    out.step_time = flags->Duration("step-time", in.step_time, ", or measured");
  } else if (in.stub_gradients) {
    // Stub gradients have no mathematics to measure.
    flags->Duration("step-time", in.step_time, "; stub gradients take no time of their own");
  }
  out.speed_spread = flags->Share("speed-spread", in.speed_spread);
  out.slow_worker = flags->Number("slow-worker", in.slow_worker, 1, kSlowWorkerMax);
  out.step_jitter = flags->Share("step-jitter", in.step_jitter);
  out.fail_rate = flags->Rate("fail-rate", in.fail_rate);
  if (in.restart_after != "never") {
    out.restart_after = flags->Duration("restart-after", in.restart_after, ", or never");
  }
  out.stub_gradients = in.stub_gradients;
  return out;
}

// What of the job a simulated one does without.
std::vector<std::string> LeftOut(const v1::Job& job) {
  std::vector<std::string> notes;
  if (!job.checkpoint().restore().empty()) {
    notes.push_back("checkpoint.restore is left out: the simulated job begins anew");
  }
  if (!job.checkpoint().directory().empty()) notes.push_back("no checkpoints are written");
  if (job.cluster().replicas() > 0) {
    notes.push_back("what servers send to their standbys is left out");
  }
  return notes;
}

// Runs the job on simulated machines and writes its report. A signal drains the job in simulated time, the next
// one ends the process.
absl::Status Simulate(const SimulateOptions& options, SimulationOptions simulated,
                      const v1::Job& job, const std::atomic<int>& signals) {
  TESSERA_RETURN_IF_ERROR(CheckJobOutput("--report", options.report_path, options.job_path, job));
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Datasets data, LoadDatasets(job, EndsOf(job.model(), shape)));
  const absl::Status rows = CheckTrainRows(job, job.cluster().workers(), data.train.rows());
  if (!rows.ok()) {
    return absl::Status(rows.code(),
                        absl::StrCat(rows.message(), "; lower train.batch_size or ",
                                     options.workers ? "--workers" : "cluster.workers"));
  }
  if (options.step_time == "measured") {
    TESSERA_ASSIGN_OR_RETURN(simulated.step_time,
                             MeasureStepTime(job, data, BusyCores(simulated, job)));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Simulation> simulation,
                           Simulation::Create(job, simulated, &data));
  Progress progress(!options.quiet && CanRedraw());
  if (!options.quiet) {
    progress.Say(absl::StrCat(job.name(), ": simulating ",
                              Counted(job.cluster().servers().count(), "server"), ", ",
                              Counted(job.cluster().workers(), "worker"), ", ",
                              FormatDuration(simulated.step_time), " a step of the whole model"));
    for (const std::string& note : LeftOut(job)) progress.Say("note: " + note);
    for (const std::string& note : data.notes) progress.Say("note: " + note);
  }
  bool draining = false;
  absl::Time shown = SteadyNow();
  while (!simulation->Run(kEventsAtOnce)) {
    if (signals > 0 && !draining) {
      draining = true;
      simulation->Drain("interrupted");
    }
    if (options.quiet || SteadyNow() - shown < kShowInterval) continue;
    progress.Show(simulation->Status());
    shown = SteadyNow();
  }
  const v1::JobStatus status = simulation->Status();
  if (!options.quiet) progress.Show(status);
  progress.Clear();
  absl::Status written;
  if (!options.report_path.empty()) {
    written = WriteOutput("--report", options.report_path, simulation->Report());
  }
  if (const absl::Status outcome = simulation->outcome(); !outcome.ok()) {
    // How the job ended is told last; this would be lost beside it.
    if (!written.ok()) {
      std::fprintf(stderr, "tessera: %s\n", std::string(written.message()).c_str());
    }
    return outcome;
  }
  if (!options.quiet) {
    // The table has most of what the report has, also where that could not be written.
    const std::string report = written.ok() ? options.report_path : "could not be written";
    std::fputs(Progress::Summary(status, report, TextWidth()).c_str(), stdout);
    std::fflush(stdout);
  }
  return written;
}

// With the flags in place of the job's own numbers. Where every worker has a server beside it there are as many
// servers as workers unless the flags say otherwise: the job is as right as it was, whatever else is made of it.
JobReading ReadSimulatedJob(const SimulateOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  if (options.workers && *options.workers > 0) {
    const std::string workers = absl::StrCat(std::min(*options.workers, kJobWorkersMax));
    overrides.push_back("cluster.workers=" + workers);
    if (!options.servers) {
      overrides.push_back("cluster.servers=" + workers);
      JobReading beside = ReadJobFile(options.job_path, overrides, kDataFilesAlone);
      if (beside.ok() && RecipeFor(beside.job)->placement == Placement::kReplicated) return beside;
      overrides.pop_back();
    }
  }
  if (options.servers && *options.servers > 0 && *options.servers <= int{kServersMax}) {
    overrides.push_back(absl::StrCat("cluster.servers=", *options.servers));
  }
  return ReadJobFile(options.job_path, overrides, kDataFilesAlone);
}

}  // namespace

int SimulateJob(const SimulateOptions& options) {
  SetLogLevel(kNothing);
  std::atomic<int> signals{0};
  std::atomic<int> last_signal{0};
  const Termination termination([&](int count, int signal) {
    last_signal = signal;
    signals = count;
    // Said here, and there is nothing to lose: while data are read, a step is measured or a large one computed nobody
    // looks.
    const char* const clear = CanRedraw() ? "\r\x1b[K" : "";
    const char* const what = count == 1 ? "ending the simulated job; again to stop at once"
                                        : "stopped at once; no report";
    std::fprintf(stderr, "%stessera: %s\n", clear, what);
    if (count > 1) EndBySignal(signal);
  });
  FlagReader flags("tessera simulate");
  const SimulationOptions simulated = ReadFlags(options, &flags);
  JobReading reading = ReadSimulatedJob(options);
  if (!reading.ok() || !flags.errors().empty()) {
    std::fputs(flags.errors().c_str(), stderr);
    TellJobErrors(reading);
    return 2;
  }
  const absl::Status has_layers = RefuseTensors("simulate", reading.job.model(),
                                                "a job of layers of the same size tells what "
                                                "methods and networks make of it");
  if (!has_layers.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(has_layers.message()).c_str());
    return 2;
  }
  if (options.workers.value_or(0) > kJobWorkersMax) {
    reading.job.mutable_cluster()->set_workers(*options.workers);
  }
  const absl::Status status = Simulate(options, simulated, reading.job, signals);
  if (!status.ok()) std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
  if (signals > 0) return kSignalExitCode + last_signal;
  if (status.ok()) return 0;
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ? 2 : 1;
}

}  // namespace tessera
