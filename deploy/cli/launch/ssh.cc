#include "deploy/cli/launch/ssh.h"

#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {

// A child is started by its path, without a search.
absl::StatusOr<Ssh> Ssh::Find(SshOptions options) {
  const char* const path = getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string program = absl::StrCat(folder, "/ssh");
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) {
      return Ssh(program, std::move(options));
    }
  }
  return absl::NotFoundError(
      "ssh: no such program in PATH, want OpenSSH's client; on Debian: apt-get install "
      "openssh-client");
}

std::vector<std::string> Ssh::CommonArguments(const LaunchHost& host) const {
  std::vector<std::string> arguments;
  const auto set = [&arguments](absl::string_view option) {
    arguments.insert(arguments.end(), {"-o", std::string(option)});
  };
  // Where an option is set twice ssh takes the first, and so the user's options stand in front of ours.
  for (const std::string& option : options_.options) set(option);
  // A question would be asked on a terminal that shows the progress, once for each process.
  set("BatchMode=yes");
  set("ConnectTimeout=10");
  set("ServerAliveInterval=5");
  set("ServerAliveCountMax=3");
  set("ForwardAgent=no");
  set("ForwardX11=no");
  // With a key of its own ssh offers no others, of which a server takes a few only.
  if (!options_.identity.empty()) {
    arguments.insert(arguments.end(), {"-i", options_.identity, "-o", "IdentitiesOnly=yes"});
  }
  if (host.ssh_port > 0) arguments.insert(arguments.end(), {"-p", absl::StrCat(host.ssh_port)});
  return arguments;
}

std::vector<std::string> Ssh::Arguments(const LaunchHost& host, absl::string_view script,
                                        const std::string& said) const {
  std::vector<std::string> arguments = CommonArguments(host);
  arguments.push_back("-T");
  if (!said.empty()) arguments.insert(arguments.end(), {"-E", said});
  // Whatever the user's shell there is, it knows single quotes.
  arguments.insert(arguments.end(),
                   {"--", host.target, absl::StrCat("exec /bin/sh -c ", ShellWord(script))});
  return arguments;
}

std::vector<std::string> Ssh::ConfigArguments(const LaunchHost& host) const {
  std::vector<std::string> arguments = CommonArguments(host);
  arguments.insert(arguments.end(), {"-G", "--", host.target});
  return arguments;
}

std::string SshAdvice(absl::string_view error) {
  // Signs that OpenSSH's messages have had for many versions.
  static constexpr std::pair<absl::string_view, absl::string_view> kAdvice[] = {
      {"Permission denied",
       "it takes none of your keys: give one with --identity, or put yours there with ssh-copy-id"},
      {"Could not resolve hostname",
       "no such host: correct the list, or name it in ~/.ssh/config or /etc/hosts"},
      {"Connection refused", "no ssh server listens there; HOST:PORT names another port"},
      {"timed out", "it does not answer: is it up, and does a firewall let ssh through?"},
      {"No route to host", "it does not answer: is it up, and does a firewall let ssh through?"},
      {"Host key verification failed",
       "its key is not known here: call it once with ssh and compare the key, or pass --ssh-option "
       "StrictHostKeyChecking=accept-new"},
      {"No such file or directory", "is the file of --identity there?"},
  };
  for (const auto& [sign, advice] : kAdvice) {
    if (absl::StrContains(error, sign)) return std::string(advice);
  }
  return "";
}

SshConnection::SshConnection(Ssh ssh, LaunchHost host, std::vector<std::string> attach,
                             std::vector<std::string> command, absl::Duration grace,
                             std::string said)
    : ssh_(std::move(ssh)),
      host_(std::move(host)),
      attach_(std::move(attach)),
      command_(std::move(command)),
      grace_(grace),
      said_(std::move(said)) {}

std::vector<std::string> SshConnection::ArgumentsFrom(int64_t log_bytes) const {
  return ssh_.Arguments(host_,
                        absl::StrCat("exec ", ShellWords(attach_), " --from ", log_bytes, " -- ",
                                     ShellWords(command_)),
                        said_);
}

// ssh appends to the file whenever it is started again.
std::string SshConnection::LastWords() const {
  std::ifstream said(said_);
  std::string last;
  for (std::string line; std::getline(said, line);) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (!text.empty()) last = std::string(text);
  }
  return last;
}

}  // namespace tessera
