#include "deploy/cli/run/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

// This process's environment with `changes`, each "NAME=value".
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  const auto is_changed = [&changes](absl::string_view variable) {
    const absl::string_view name = variable.substr(0, variable.find('='));
    return std::any_of(changes.begin(), changes.end(), [name](absl::string_view change) {
      return change.substr(0, change.find('=')) == name;
    });
  };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!is_changed(*variable)) all.emplace_back(*variable);
  }
  return all;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(Options options) {
  std::vector<char*> argv;
  argv.push_back(options.program.data());
  for (std::string& argument : options.arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // Made before the fork: the child of a process with threads may not allocate.
  std::vector<std::string> environment = EnvironmentWith(options.environment);
  std::vector<char*> envp;
  for (std::string& variable : environment) envp.push_back(variable.data());
  envp.push_back(nullptr);

  const int log = open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) {
    return absl::UnavailableError(
        absl::StrCat(options.log_path, ": cannot be written: ", strerror(errno)));
  }
  // The child writes errno here if it cannot become the program.
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) {
    close(log);
    return absl::InternalError(absl::StrCat("pipe: ", strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // The parent died before prctl took hold.
    setpgid(0, 0);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(failure[1], &error, sizeof(error));
    _exit(127);
  }
  close(log);
  close(failure[1]);
  int error = 0;
  const bool failed = pid < 0 || read(failure[0], &error, sizeof(error)) == sizeof(error);
  close(failure[0]);
  if (failed) {
    if (pid > 0) waitpid(pid, nullptr, 0);
    return absl::NotFoundError(absl::StrCat(options.name, ": cannot start \"", options.program,
                                            "\": ", strerror(error != 0 ? error : errno)));
  }
  return ChildProcess(std::move(options), pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(options_, other.options_);
  std::swap(pid_, other.pid_);
  std::swap(exit_, other.exit_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || Poll().has_value()) return;
  Kill();
  waitpid(pid_, nullptr, 0);
}

std::optional<ChildProcess::Exit> ChildProcess::Poll() {
  if (exit_.has_value() || pid_ < 0) return exit_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  Exit result;
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
    if (result.signal == SIGKILL && options_.why_killed) result.why = options_.why_killed();
  } else {
    result.code = WEXITSTATUS(status);
  }
  exit_ = result;
  return exit_;
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0 && !Poll().has_value()) kill(pid_, signal);
}

void ChildProcess::Kill() {
  // It leads a group of its own since before it became the program, and a shell may have started others. Once it has
  // ended its number may be another's.
  if (pid_ > 0 && !Poll().has_value()) kill(-pid_, SIGKILL);
}

std::string ChildProcess::Exit::ToString() const {
  if (signal != 0) {
    return absl::StrCat("signal ", signal, " (", strsignal(signal), ")", why.empty() ? "" : ": ",
                        why);
  }
  return absl::StrCat("exit code ", code);
}

std::string ChildProcess::LogTail(int lines) const {
  std::ifstream log(options_.log_path);
  std::deque<std::string> tail;
  for (std::string line; std::getline(log, line);) {
    tail.push_back(std::move(line));
    if (static_cast<int>(tail.size()) > lines) tail.pop_front();
  }
  return absl::StrJoin(tail, "\n");
}

std::string NamesOfRunning(const std::vector<std::vector<ChildProcess>*>& groups) {
  std::vector<std::string> names;
  for (std::vector<ChildProcess>* const children : groups) {
    for (ChildProcess& child : *children) {
      if (!child.Poll().has_value()) names.push_back(child.name());
    }
  }
  return absl::StrJoin(names, ", ");
}

absl::Status ChildError(const ChildProcess& child, const ChildProcess::Exit& exit,
                        absl::string_view so) {
  std::string tail = child.LogTail(8);
  if (tail.empty()) tail = absl::StrCat("none; is there room for ", child.log_path(), "?");
  const std::string text =
      absl::StrCat(child.name(), " ended with ", exit.ToString(), so, kLastLines, tail);
  return exit.code == 2 ? absl::InvalidArgumentError(text) : absl::AbortedError(text);
}

}  // namespace tessera
