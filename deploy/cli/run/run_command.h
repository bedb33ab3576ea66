// `tessera run JOB.yaml`: the job's servers and workers as child processes on this machine.
#ifndef TESSERA_DEPLOY_CLI_RUN_RUN_COMMAND_H_
#define TESSERA_DEPLOY_CLI_RUN_RUN_COMMAND_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/config/job_reader.h"
#include "deploy/cli/plan/exchange_time.h"
#include "deploy/cli/run/child_place.h"
#include "proto/job.pb.h"
#include "proto/status.pb.h"

namespace tessera {

struct RunOptions {
  // The name by which this program was called: argv[0].
  std::string program;
  std::string job_path;
  // "a.b=v", as given by --set.
  std::vector<std::string> overrides;
  // The file that the report is written to; empty: none.
  std::string report_path;
  // HOST:PORT where server 0 serves the page for a browser, port 0 for a free one; empty: nowhere.
  std::string page;
  // HOST:PORT where server 0 serves the job's metrics over plain HTTP, port 0 for a free one; empty: nowhere.
  std::string metrics;
  // How long server 0 serves the end of the job there at most, until that is scraped.
  absl::Duration metrics_linger;
  // The folder of an event file for TensorBoard, to which each evaluation is appended; empty: none.
  std::string tensorboard;
  // If set, there is no progress and no table, and only errors are printed.
  bool quiet = false;
  // The folder of the children's logs; empty: a temporary one, kept only when something went wrong.
  std::string log_directory;
  // The shell command of each worker, in place of tessera-worker; empty: that one, and in a job of tensors none.
  std::string worker_command;
  // How this run was started, for the report.
  v1::JobOrigin origin;
  // Where the processes run; null: on this machine.
  const ChildPlace* place = nullptr;
  // What the job's end is asked for by, where a signal comes.
  std::string command = "tessera run";
};

// The signals that have come. Any thread.
struct RunSignals {
  std::atomic<int> count{0};
  std::atomic<int> last{0};
};

// Trains the job, whose file was read, and prints what RunJob prints of it but for the error that it returns.
//   kInvalidArgument  it was refused before it took part
//   kCancelled        the second signal ended it
absl::Status TrainJob(const RunOptions& options, const v1::Job& job, const RunSignals& signals);

// The exit code of a command that has trained a job so, as RunJob has it.
int ExitCodeOf(const absl::Status& status, const RunSignals& signals);

// Reads the job, chooses what it leaves open for these machines (deploy/cli/plan/open_keys.h), which is among the
// overrides then, and says so. Returns 0; or says what is wrong and returns the process's exit code.
int ReadJobToStart(const Machines& machines, const JobOptions& checks, RunOptions* options,
                   JobReading* reading);

// Runs the job to its end and returns the process's exit code:
//   0  the job ended normally, also after losing workers, or because somebody asked its servers for it
//   1  it did not; stderr says what, where and what to do
//   2  the job file is wrong; stderr lists everything that is. Or the metrics' address is
//   128 + n  signal n came, whatever became of the job: see EndBySignal (common/base/termination.h)
// The first Ctrl-C or SIGTERM lets the job finish its step, evaluate and report; the second ends it
// at once. No child outlives the call.
int RunJob(RunOptions options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_RUN_COMMAND_H_
