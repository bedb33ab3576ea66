// The system's ssh program, as `tessera launch` calls it.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_SSH_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_SSH_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/cli/launch/host_list.h"
#include "deploy/cli/run/child_connection.h"

namespace tessera {

struct SshOptions {
  // The file of a private key; empty: ssh's own choice.
  std::string identity;
  // Of ssh_config: "StrictHostKeyChecking=accept-new". They count for more than what is set here.
  std::vector<std::string> options;
};

// Constant after construction; any thread.
class Ssh {
 public:
  // kNotFound: PATH has no ssh.
  static absl::StatusOr<Ssh> Find(SshOptions options);

  const std::string& program() const { return program_; }
  // Arguments that run `script`, of a POSIX shell, on the host. Nothing is asked on the terminal; a host that is
  // silent for some seconds ends the call with 255. What ssh itself says goes to stderr, or is appended to the file
  // `said`.
  std::vector<std::string> Arguments(const LaunchHost& host, absl::string_view script,
                                     const std::string& said = "") const;
  // Arguments that print ssh's configuration of the host, "hostname 10.0.0.2" among it, and call nobody.
  std::vector<std::string> ConfigArguments(const LaunchHost& host) const;

 private:
  Ssh(std::string program, SshOptions options)
      : program_(std::move(program)), options_(std::move(options)) {}
  std::vector<std::string> CommonArguments(const LaunchHost& host) const;

  std::string program_;
  SshOptions options_;
};

// What to do about an error of ssh's; empty: nothing is known.
std::string SshAdvice(absl::string_view error);

// The connection to a process that `tessera attach` holds.
class SshConnection final : public ChildConnection {
 public:
  // `attach` is the command there without --from; `command` the process. `said` is a file for what ssh says.
  SshConnection(Ssh ssh, LaunchHost host, std::vector<std::string> attach,
                std::vector<std::string> command, absl::Duration grace, std::string said);

  std::vector<std::string> ArgumentsFrom(int64_t log_bytes) const override;
  std::string LastWords() const override;
  absl::Duration grace() const override { return grace_; }

 private:
  const Ssh ssh_;
  const LaunchHost host_;
  const std::vector<std::string> attach_;
  const std::vector<std::string> command_;
  const absl::Duration grace_;
  const std::string said_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_SSH_H_
