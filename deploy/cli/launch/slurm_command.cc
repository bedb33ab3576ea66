#include "deploy/cli/launch/slurm_command.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/config/job_reader.h"
#include "common/method/recipe.h"
#include "deploy/cli/flag_reader.h"
#include "deploy/cli/launch/host_calls.h"
#include "deploy/cli/launch/slurm_script.h"
#include "deploy/cli/plan/open_keys.h"
#include "deploy/cli/run/run_command.h"
#include "deploy/cli/run/run_folders.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

// A controller that is busy takes its time.
constexpr absl::Duration kSubmitMax = absl::Minutes(2);

// Nodes run the script in the folder that it was submitted from, if they have that.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

// The script, once all that it names is there.
absl::StatusOr<std::string> ScriptOf(const SlurmLaunchOptions& options, const v1::Job& job,
                                     const std::string& logs) {
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(job));
  SlurmOptions slurm;
  std::error_code error;
  slurm.programs =
      options.bundle.empty()
          ? std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string()
          : Absolute(options.bundle);
  slurm.job_path = Absolute(options.run.job_path);
  slurm.overrides = options.run.overrides;
  slurm.log_directory = logs;
  if (!options.run.report_path.empty()) slurm.report_path = Absolute(options.run.report_path);
  slurm.nodes = options.nodes;
  slurm.port = options.port;
  slurm.sbatch = options.sbatch;
  for (const char* program : {"tessera", "tessera-server", "tessera-worker"}) {
    if (std::filesystem::exists(slurm.programs + "/" + program, error)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", slurm.programs, "\" has no ", program,
                     ", want a bundle in a folder that all nodes see: pack one with "
                     "deploy/bundle.sh, and name it with --bundle"));
  }
  return SlurmScript(job, recipe, slurm);
}

// Hands the script to sbatch, which copies it.
absl::Status Submit(const std::string& script, const std::string& logs, bool is_quiet) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<RunFolders> folders, RunFolders::Open(""));
  const std::string path = folders->PrivatePath("job.sh");
  TESSERA_RETURN_IF_ERROR(WriteOutput("the script", path, script));
  std::error_code error;
  std::filesystem::create_directories(logs, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("--logs: \"", logs, "\": ", error.message()));
  }
  // Slurm writes to the folder from the job's first moment.
  HostCalls calls(folders->PrivatePath(""), !is_quiet);
  // A shell finds sbatch in PATH.
  const HostCall call = {"sbatch", "/bin/sh", {"-c", "exec sbatch --parsable " + ShellWord(path)}};
  TESSERA_ASSIGN_OR_RETURN(const std::vector<HostAnswer> answers,
                           calls.Call("Slurm's answer", {call}, kSubmitMax, nullptr));
  const HostAnswer& answer = answers[0];
  if (!answer.ok()) {
    return absl::UnavailableError(absl::StrCat("sbatch: ", answer.Why(),
                                               "; --print shows the script, for a machine that has "
                                               "Slurm"));
  }
  if (!is_quiet) {
    std::printf("Slurm job %s; its output will be in %s\n", answer.Why().c_str(), logs.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

int SubmitToSlurm(SlurmLaunchOptions options) {
  FlagReader reader("tessera launch");
  Machines machines = OneMachine();
  machines.bandwidth = static_cast<double>(reader.Bandwidth("bandwidth", options.bandwidth));
  if (!reader.errors().empty()) {
    std::fprintf(stderr, "%s", reader.errors().c_str());
    return 2;
  }
  JobReading reading;
  // The batch script names what is chosen, so that a job that waits for days is the one that was submitted.
  const int refused = ReadJobToStart(machines, {/*check_files=*/false}, &options.run, &reading);
  if (refused != 0) return refused;
  const std::string logs =
      Absolute(options.run.log_directory.empty() ? "tessera-logs" : options.run.log_directory);
  const absl::StatusOr<std::string> script = ScriptOf(options, reading.job, logs);
  absl::Status status = script.status();
  if (status.ok() && options.only_prints) {
    std::fputs(script->c_str(), stdout);
  } else if (status.ok()) {
    status = Submit(*script, logs, options.run.quiet);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace tessera
