#include "deploy/cli/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "deploy/cli/run/memory_kills.h"

namespace tessera {
namespace {

// How late a supervisor may notice what it acts upon. It is there for as long as its process, and is to cost nothing.
constexpr absl::Duration kLook = absl::Milliseconds(100);

// Set by the handler of SIGTERM.
volatile sig_atomic_t is_asked = 0;

// Tells how long a file's time has stood still, by a clock that nobody sets.
class Lease {
 public:
  explicit Lease(std::string path) : path_(std::move(path)) {}

  absl::Duration StoodStill() {
    struct stat now = {};
    const bool is_there = stat(path_.c_str(), &now) == 0;
    if (is_there && (now.st_mtim.tv_sec != seen_.tv_sec || now.st_mtim.tv_nsec != seen_.tv_nsec)) {
      seen_ = now.st_mtim;
      moved_ = SteadyNow();
    }
    return SteadyNow() - moved_;
  }

 private:
  const std::string path_;
  timespec seen_ = {};
  absl::Time moved_ = SteadyNow();
};

// Holds the process to its end.
ChildProcess::Exit Hold(const SupervisedFiles& files, const SupervisedProcess& process) {
  MemoryKills memory_kills;
  ChildProcess::Options options;
  options.name = files.name();
  options.program = process.program;
  options.arguments = process.arguments;
  options.log_path = files.log();
  options.why_killed = [&memory_kills] { return memory_kills.Explain(); };
  absl::StatusOr<ChildProcess> child = ChildProcess::Start(std::move(options));
  if (!child.ok()) return {/*code=*/1, /*signal=*/0, std::string(child.status().message())};
  Lease lease(files.lease());
  absl::Time limit = absl::InfiniteFuture();
  bool was_asked = false;
  while (true) {
    if (const std::optional<ChildProcess::Exit> exit = child->Poll()) return *exit;
    if (access(files.end().c_str(), F_OK) == 0 || SteadyNow() > limit) child->Kill();
    const bool is_over = lease.StoodStill() > process.grace;
    if ((is_asked != 0 || is_over) && !was_asked) {
      was_asked = true;
      child->Signal(SIGTERM);
    }
    // A process that cannot finish, as its peers were left with it, gets no more time than this.
    if (is_over) limit = std::min(limit, SteadyNow() + kSupervisedEndMax);
    absl::SleepFor(kLook);
  }
}

// Waits until the launching machine ends the job, which removes its files; or until that is gone, and then removes the
// secrets: the process may have ended sooner, because its peers had.
void AwaitEndOfJob(const SupervisedFiles& files, absl::Duration grace) {
  Lease lease(files.lease());
  while (access(files.lease().c_str(), F_OK) == 0 && access(files.end().c_str(), F_OK) != 0) {
    if (lease.StoodStill() > grace) {
      std::error_code error;
      std::filesystem::remove_all(files.job(), error);
      return;
    }
    absl::SleepFor(kLook);
  }
}

// What the supervisor does after the fork. It has nothing of whoever started it but the lock.
[[noreturn]] void Supervise(const SupervisedFiles& files, const SupervisedProcess& process) {
  setsid();
  // Handlers end where a program begins: what is ignored here would be ignored there.
  struct sigaction asked = {};
  asked.sa_handler = [](int) { is_asked = 1; };
  sigaction(SIGTERM, &asked, nullptr);
  struct sigaction passed_over = {};
  passed_over.sa_handler = [](int) {};
  sigaction(SIGHUP, &passed_over, nullptr);
  sigaction(SIGINT, &passed_over, nullptr);
  // As long as these were the connection's, sshd would wait for their end.
  const int null = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  if (null > STDERR_FILENO) close(null);
  // The job file and what it names are here.
  const bool is_in_folder = chdir(files.job().c_str()) == 0;
  const ChildProcess::Exit exit =
      is_in_folder ? Hold(files, process)
                   : ChildProcess::Exit{1, 0, absl::StrCat(files.job(), ": ", strerror(errno))};
  const bool is_written = files.WriteExit(exit).ok();
  AwaitEndOfJob(files, process.grace);
  _exit(is_written ? 0 : 1);
}

}  // namespace

absl::StatusOr<bool> StartSupervisor(const SupervisedFiles& files,
                                     const SupervisedProcess& process) {
  const int lock = open(files.supervisor().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) {
    return absl::UnavailableError(
        absl::StrCat(files.supervisor(), ": cannot be written: ", strerror(errno)));
  }
  // Whoever has the lock starts it, and only if nobody has done so before: a supervisor that is gone leaves its number.
  struct stat held = {};
  const bool is_started =
      flock(lock, LOCK_EX | LOCK_NB) != 0 || fstat(lock, &held) != 0 || held.st_size > 0;
  if (is_started) {
    close(lock);
    return false;
  }
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string text = absl::StrCat(getpid(), "\n");
    if (write(lock, text.data(), text.size()) < 0) _exit(1);
    Supervise(files, process);
  }
  const int error = errno;
  // The supervisor has the lock on, as it shares what was opened here.
  close(lock);
  if (pid < 0) return absl::UnavailableError(absl::StrCat("no other process: ", strerror(error)));
  return true;
}

int RunningSupervisor(const SupervisedFiles& files) {
  const int lock = open(files.supervisor().c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return 0;
  const bool is_free = flock(lock, LOCK_SH | LOCK_NB) == 0;
  close(lock);
  if (is_free) return 0;
  int pid = 0;
  std::ifstream(files.supervisor()) >> pid;
  return std::max(pid, 1);  // It is about to write its number.
}

std::vector<std::string> EndSupervised(const std::string& folder, absl::Duration patience) {
  // All that were ever started here, whether they run or not.
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    absl::string_view name = file;
    if (absl::ConsumeSuffix(&name, kSupervisorSuffix)) names.emplace_back(name);
  }
  // Supervisors look for this file.
  std::ofstream(SupervisedFiles(folder, "").end()).put('\n');
  const absl::Time limit = SteadyNow() + patience;
  const auto is_gone = [&folder](const std::string& name) {
    return RunningSupervisor(SupervisedFiles(folder, name)) == 0;
  };
  while (true) {
    names.erase(std::remove_if(names.begin(), names.end(), is_gone), names.end());
    if (names.empty() || SteadyNow() > limit) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  if (names.empty()) std::filesystem::remove_all(folder, error);
  return names;
}

}  // namespace tessera
