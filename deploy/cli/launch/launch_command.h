// `tessera launch JOB.yaml --hosts a,b,c`: the job's servers and workers on other machines, by ssh.
//
//   1. probe     all hosts at once: can they be reached, are they machines of the bundle's kind
//   2. bundle    copied to hosts that do not have this one
//   3. placement which host gets which processes, as a table
//   4. job       its file, certificates and tokens to all; its data, with --copy-data, where they are missing
//   5. doctor    on all hosts at once
//   6. training  as `tessera run` follows it (run_command.h), each process at the end of a connection
//   7. end       what is left on the hosts is ended, and the job's files there removed
//
// Whatever is wrong in step 1, 2 or 5 is told of all hosts together.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_LAUNCH_COMMAND_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_LAUNCH_COMMAND_H_

#include <string>

#include "deploy/cli/launch/ssh.h"
#include "deploy/cli/run/run_command.h"

namespace tessera {

struct LaunchOptions {
  // The flags that `tessera run` has, too.
  RunOptions run;
  // The hosts: a list, or a file's path (host_list.h).
  std::string hosts;
  std::string hosts_file;
  SshOptions ssh;
  // Where bundles and jobs lie on the hosts that name no other place; empty: ~/.cache/tessera.
  std::string directory;
  // A bundle's folder; empty: this program's.
  std::string bundle;
  // The first port of servers whose addresses the job does not list.
  int port = 7000;
  // How long processes go on without this command: "60s".
  std::string grace = "60s";
  // What carries the bytes of one host, each way, for what the job leaves open: "10Gbit".
  std::string bandwidth = "10Gbit";
  // Whether hosts get the data, and do not have them already.
  bool copies_data = false;
  // Whether nothing is started.
  bool only_checks = false;
};

// Runs the job to its end and returns the process's exit code, as RunJob does; 1 also where a host cannot take part.
// What this process cannot end on a host ends there by itself after the grace.
int LaunchJob(LaunchOptions options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_LAUNCH_COMMAND_H_
