#include "deploy/cli/launch/attach_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/cli/launch/supervised_files.h"
#include "deploy/cli/launch/supervisor.h"
#include "deploy/cli/run/child_connection.h"

namespace tessera {
namespace {

// How late the log is passed on.
constexpr int kLookMs = 50;
// How long processes that were killed are waited for: a disk that hangs may hold them.
constexpr absl::Duration kEndPatience = absl::Seconds(5);

// Writes all of `text` to stdout. False: nobody reads it.
bool WriteOut(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Writes what a growing log has, from a place on.
class LogReader {
 public:
  LogReader(std::string path, int64_t begin) : path_(std::move(path)), at_(begin) {}
  ~LogReader() {
    if (file_ >= 0) close(file_);
  }

  // False: nobody reads it.
  bool WriteNew() {
    if (file_ < 0) file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) return true;  // It is not there yet.
    char block[1 << 16];
    while (true) {
      const ssize_t count = pread(file_, block, sizeof(block), at_);
      if (count <= 0) return true;
      if (!WriteOut({block, static_cast<size_t>(count)})) return false;
      at_ += count;
    }
  }

 private:
  const std::string path_;
  int64_t at_;
  int file_ = -1;
};

// Takes what the caller says within a moment. False: it is gone.
bool Hear(const SupervisedFiles& files) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, kLookMs) <= 0) return true;
  char bytes[64];
  const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
  // The end of the input: the caller has ended, or its connection has.
  if (count <= 0) return count < 0 && errno == EINTR;
  utimensat(AT_FDCWD, files.lease().c_str(), nullptr, 0);
  if (absl::string_view(bytes, static_cast<size_t>(count)).find(kTerminateByte) !=
      absl::string_view::npos) {
    const int supervisor = RunningSupervisor(files);
    if (supervisor > 1) kill(supervisor, SIGTERM);
  }
  return true;
}

// Ends all processes of the folder, and tells which are left.
int EndAll(const AttachOptions& options) {
  const std::vector<std::string> left = EndSupervised(options.folder, kEndPatience);
  if (left.empty()) return 0;
  std::fprintf(stderr, "tessera attach: %s: these have not ended within %s: %s\n",
               options.folder.c_str(), absl::FormatDuration(kEndPatience).c_str(),
               absl::StrJoin(left, ", ").c_str());
  return 1;
}

}  // namespace

int Attach(const AttachOptions& options) {
  if (options.name.empty()) return EndAll(options);
  // Whoever calls this by hand is told what is missing.
  if (options.command.empty()) {
    std::fprintf(stderr, "tessera attach: got no command, want one behind --\n");
    return 2;
  }
  // The call itself is a sign of the caller, before it has said a byte.
  const SupervisedFiles files(options.folder, options.name);
  utimensat(AT_FDCWD, files.lease().c_str(), nullptr, 0);
  const SupervisedProcess process = {options.command[0],
                                     {options.command.begin() + 1, options.command.end()},
                                     absl::Seconds(options.grace_seconds)};
  const absl::StatusOr<bool> started = StartSupervisor(files, process);
  if (!started.ok()) {
    std::fprintf(stderr, "tessera attach: %s\n", std::string(started.status().message()).c_str());
    return 1;
  }
  // A connection that is gone is an error of writing. What was started is not to inherit that.
  signal(SIGPIPE, SIG_IGN);
  LogReader log(files.log(), options.log_begin);
  while (true) {
    // Who has ended has written all before.
    const bool is_held = RunningSupervisor(files) != 0;
    const std::optional<ChildProcess::Exit> exit = files.ReadExit();
    if (!log.WriteNew()) return kConnectionLost;
    if (exit.has_value()) {
      if (!exit->why.empty()) WriteOut(absl::StrCat("tessera: ", exit->ToString(), "\n"));
      return exit->signal != 0 ? 128 + exit->signal : exit->code;
    }
    if (!is_held) {
      WriteOut(absl::StrCat("tessera: ", options.name, " was killed with its supervisor\n"));
      return 128 + SIGKILL;
    }
    if (!Hear(files)) return kConnectionLost;
  }
}

}  // namespace tessera
