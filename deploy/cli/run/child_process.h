// A child process of `tessera run`: started with its output in a log file, and never left behind.
#ifndef TESSERA_DEPLOY_CLI_RUN_CHILD_PROCESS_H_
#define TESSERA_DEPLOY_CLI_RUN_CHILD_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/cli/run/child_connection.h"

namespace tessera {

// Movable. The destructor kills a child that still runs, and what that has started in its process group. One thread.
class ChildProcess {
 public:
  struct Options {
    // The child's name in messages: "server 0".
    std::string name;
    std::string program;
    std::vector<std::string> arguments;
    // The file that both output streams go to.
    std::string log_path;
    // Asked once where SIGKILL ended the child, which leaves no last words: who sent that, if it is known. Null:
    // nobody knows.
    std::function<std::string()> why_killed;
    // "NAME=value", beside this process's environment or in place of what that has by this name.
    std::vector<std::string> environment = {};
    // The file that it reads as its standard input; empty: none.
    std::string input_path = {};
    // Set where the child is the connection to a process of another machine. It is started again where that is lost,
    // and `tell` gets a sentence on it, once for each loss.
    std::shared_ptr<const ChildConnection> connection = {};
    std::function<void(const std::string&)> tell = {};
  };

  // The child dies with this process, even if this process is killed, and does not get the
  // terminal's Ctrl-C: the parent decides what that means. kNotFound, kPermissionDenied: it cannot
  // be started.
  static absl::StatusOr<ChildProcess> Start(Options options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  const std::string& name() const { return options_.name; }
  pid_t pid() const { return pid_; }
  // How the child has ended; nullopt while it runs. Does not wait.
  struct Exit {
    int code = 0;     // exit code, where signal is 0
    int signal = 0;   // the signal that ended it
    std::string why;  // where that is known
    bool ok() const { return code == 0 && signal == 0; }
    // The end in words: "exit code 2", "signal 9 (Killed)", "signal 9 (Killed): out of memory"
    std::string ToString() const;
  };
  std::optional<Exit> Poll();
  // Sends the child a signal; to a process of another machine only SIGTERM.
  void Signal(int signal);
  // Ends it at once, and what it has started in its process group.
  void Kill();
  // The last lines of its log, for an error message.
  std::string LogTail(int lines) const;
  const std::string& log_path() const { return options_.log_path; }

 private:
  explicit ChildProcess(Options options) : options_(std::move(options)) {}
  absl::Status Spawn();
  void Write(char byte);
  std::optional<Exit> TakeEnd(Exit ended);
  std::optional<Exit> ConnectAgain();

  Options options_;
  pid_t pid_ = -1;
  std::optional<Exit> exit_;
  // A child with a connection has this socket as its standard input, and was last told at `pinged_` that we are here.
  int control_ = -1;
  absl::Time pinged_ = absl::InfinitePast();
  absl::Time started_ = absl::InfinitePast();
  // When the connection was lost, unless it has held since, and when it is tried again.
  absl::Time lost_ = absl::InfiniteFuture();
  absl::Time again_ = absl::InfiniteFuture();
  bool is_killed_ = false;
};

// The names of those that have not ended: "server 1, worker 0".
std::string NamesOfRunning(const std::vector<std::vector<ChildProcess>*>& groups);

// The words behind which the last lines stand in the text of ChildError.
constexpr absl::string_view kLastLines = "; its last lines:\n";

// "server 1 ended with exit code 1<so>; its last lines:\n...".
//   kInvalidArgument  the code is 2, which says that the job or a flag is wrong
//   kAborted          any other end
absl::Status ChildError(const ChildProcess& child, const ChildProcess::Exit& exit,
                        absl::string_view so);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_CHILD_PROCESS_H_
