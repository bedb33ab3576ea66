// Commands for many hosts at once.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_HOST_CALLS_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_HOST_CALLS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/cli/run/run_command.h"

namespace tessera {

struct HostCall {
  // The host's name in messages.
  std::string host;
  // A program here and its arguments.
  std::string program;
  std::vector<std::string> arguments;
};

struct HostAnswer {
  std::string host;
  // Its exit code; 128 and more where a signal ended it. Of use where it ended in time.
  int code = 0;
  bool in_time = false;
  // What it wrote to both streams.
  std::string text;

  bool ok() const { return in_time && code == 0; }
  // Why it is not, in one line: what was written last.
  std::string Why() const;
};

// One thread.
class HostCalls {
 public:
  // Answers lie in `folder` meanwhile. `tells`: whether hosts that are waited for are named on stderr.
  HostCalls(std::string folder, bool tells) : folder_(std::move(folder)), tells_(tells) {}

  // Makes all calls at once; the answers, in their order, once all have ended or `limit` is over, which ends the
  // others. `what` says what is waited for: "the checks". With `signals`, the first that comes ends all.
  //   kCancelled  a signal came
  absl::StatusOr<std::vector<HostAnswer>> Call(absl::string_view what,
                                               const std::vector<HostCall>& calls,
                                               absl::Duration limit, const RunSignals* signals);

 private:
  const std::string folder_;
  const bool tells_;
  int count_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_HOST_CALLS_H_
