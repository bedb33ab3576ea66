#include "deploy/cli/run/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"

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
  ChildProcess child(std::move(options));
  TESSERA_RETURN_IF_ERROR(child.Spawn());
  return child;
}

// Starts the program; one that is started again goes on with its log.
absl::Status ChildProcess::Spawn() {
  const bool is_again = started_ != absl::InfinitePast();
  std::vector<char*> argv;
  argv.push_back(options_.program.data());
  for (std::string& argument : options_.arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // Made before the fork: the child of a process with threads may not allocate.
  std::vector<std::string> environment = EnvironmentWith(options_.environment);
  std::vector<char*> envp;
  for (std::string& variable : environment) envp.push_back(variable.data());
  envp.push_back(nullptr);

  const int how = O_WRONLY | O_CREAT | O_CLOEXEC | (is_again ? O_APPEND : O_TRUNC);
  const int log = open(options_.log_path.c_str(), how, 0644);
  if (log < 0) {
    return absl::UnavailableError(
        absl::StrCat(options_.log_path, ": cannot be written: ", strerror(errno)));
  }
  // A socket and not a pipe: writing to a child that is gone is an error, and no signal to this process.
  int control[2] = {-1, -1};
  if (options_.connection != nullptr &&
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) != 0) {
    close(log);
    return absl::InternalError(absl::StrCat("socketpair: ", strerror(errno)));
  }
  // The child writes errno here if it cannot become the program.
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) {
    close(log);
    for (const int end : control) {
      if (end >= 0) close(end);
    }
    return absl::InternalError(absl::StrCat("pipe: ", strerror(errno)));
  }
  const char* const input = options_.input_path.empty() ? "/dev/null" : options_.input_path.c_str();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // The parent died before prctl took hold.
    setpgid(0, 0);
    dup2(control[1] >= 0 ? control[1] : open(input, O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(failure[1], &error, sizeof(error));
    _exit(127);
  }
  close(log);
  close(failure[1]);
  if (control[1] >= 0) close(control[1]);
  int error = 0;
  const bool failed = pid < 0 || read(failure[0], &error, sizeof(error)) == sizeof(error);
  close(failure[0]);
  if (failed) {
    if (pid > 0) waitpid(pid, nullptr, 0);
    if (control[0] >= 0) close(control[0]);
    return absl::NotFoundError(absl::StrCat(options_.name, ": cannot start \"", options_.program,
                                            "\": ", strerror(error != 0 ? error : errno)));
  }
  pid_ = pid;
  control_ = control[0];
  started_ = SteadyNow();
  return absl::OkStatus();
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(options_, other.options_);
  std::swap(pid_, other.pid_);
  std::swap(exit_, other.exit_);
  std::swap(control_, other.control_);
  std::swap(pinged_, other.pinged_);
  std::swap(started_, other.started_);
  std::swap(lost_, other.lost_);
  std::swap(again_, other.again_);
  std::swap(is_killed_, other.is_killed_);
  return *this;
}

ChildProcess::~ChildProcess() {
  is_killed_ = true;  // A connection that is lost now is not made again.
  if (pid_ > 0 && !Poll().has_value()) {
    Kill();
    waitpid(pid_, nullptr, 0);
  }
  if (control_ >= 0) close(control_);
}

std::optional<ChildProcess::Exit> ChildProcess::Poll() {
  if (exit_.has_value()) return exit_;
  if (pid_ < 0) return ConnectAgain();
  if (options_.connection != nullptr && SteadyNow() - pinged_ >= kConnectionPing) Write(kPingByte);
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  Exit result;
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
    if (result.signal == SIGKILL && options_.why_killed) result.why = options_.why_killed();
  } else {
    result.code = WEXITSTATUS(status);
  }
  return TakeEnd(std::move(result));
}

// What is ended by a connection's end: the process, or the connection alone.
std::optional<ChildProcess::Exit> ChildProcess::TakeEnd(Exit ended) {
  if (options_.connection == nullptr || is_killed_) return exit_ = std::move(ended);
  if (ended.signal == 0 && ended.code != kConnectionLost) {
    if (ended.code > 128) ended = {/*code=*/0, ended.code - 128, ""};
    return exit_ = std::move(ended);
  }
  // One that is not made at all fails sooner than one that has held for a while.
  constexpr absl::Duration kHeld = absl::Seconds(20);
  const absl::Time now = SteadyNow();
  if (now - started_ > kHeld) lost_ = absl::InfiniteFuture();
  const bool is_news = lost_ == absl::InfiniteFuture();
  lost_ = std::min(lost_, now);
  const absl::Duration grace = options_.connection->grace();
  std::string why = options_.connection->LastWords();
  if (why.empty()) why = absl::StrCat("it ended with ", ended.ToString());
  if (now - lost_ > grace) {
    return exit_ = Exit{kConnectionLost, 0,
                        absl::StrCat("no connection for ", absl::FormatDuration(grace), ": ", why)};
  }
  if (is_news && options_.tell) {
    options_.tell(absl::StrCat("the connection to ", options_.name, " is lost (", why,
                               "), which goes on for ", absl::FormatDuration(grace),
                               "; connecting again"));
  }
  pid_ = -1;
  if (control_ >= 0) close(control_);
  control_ = -1;
  again_ = is_news ? now : now + kConnectionPing;
  return std::nullopt;
}

// The log's length says how much of the output came over the connections before.
std::optional<ChildProcess::Exit> ChildProcess::ConnectAgain() {
  if (is_killed_ || SteadyNow() < again_) return std::nullopt;
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(options_.log_path, error);
  options_.arguments = options_.connection->ArgumentsFrom(error ? 0 : static_cast<int64_t>(bytes));
  if (const absl::Status started = Spawn(); !started.ok()) {
    exit_ = Exit{kConnectionLost, 0, std::string(started.message())};
  }
  return exit_;
}

// What a child that is about to end does not read any more is lost, as its connection is.
void ChildProcess::Write(char byte) {
  pinged_ = SteadyNow();
  if (control_ < 0) return;
  [[maybe_unused]] const ssize_t sent = send(control_, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ChildProcess::Signal(int signal) {
  if (pid_ <= 0 || Poll().has_value()) return;
  if (options_.connection == nullptr) {
    kill(pid_, signal);
  } else if (signal == SIGTERM) {
    Write(kTerminateByte);
  }
}

void ChildProcess::Kill() {
  is_killed_ = true;
  // It leads a group of its own since before it became the program, and a shell may have started others. Once it has
  // ended its number may be another's.
  if (pid_ > 0 && !Poll().has_value()) kill(-pid_, SIGKILL);
}

std::string ChildProcess::Exit::ToString() const {
  if (signal != 0) {
    return absl::StrCat("signal ", signal, " (", strsignal(signal), ")", why.empty() ? "" : ": ",
                        why);
  }
  return absl::StrCat("exit code ", code, why.empty() ? "" : ": ", why);
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
