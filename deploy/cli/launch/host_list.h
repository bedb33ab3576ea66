// The machines of a launched job, as --hosts and --hosts-file name them:
//
//   --hosts a,tessera@10.0.0.2,c:2222
//   --hosts-file: one machine a line, '#' begins a comment
//     a
//     tessera@10.0.0.2:2222  address=10.0.0.2 directory=/scratch/tessera servers=1 workers=4
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_HOST_LIST_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_HOST_LIST_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

constexpr size_t kHostsMax = 1024;

struct LaunchHost {
  // What messages, tables and folders of logs call it: as it was named, without the user.
  std::string name;
  // What ssh gets: host or user@host; and its port, 0: ssh's own choice.
  std::string target;
  int ssh_port = 0;
  // What the others call it; empty: what ssh does.
  std::string address;
  // Where bundles and jobs lie there; empty: ~/.cache/tessera. Relative: to the home folder.
  std::string directory;
  // How many processes it gets; nullopt: its part of what is left.
  std::optional<int> servers;
  std::optional<int> workers;
};

// Reads a list with commas, or a file's text, whose lines are counted for errors; `where` is what they begin with.
//   kInvalidArgument  all that is wrong, one line each: an empty name, a name twice, an unknown key, too many hosts
absl::StatusOr<std::vector<LaunchHost>> ParseHostList(absl::string_view where,
                                                      absl::string_view text);
absl::StatusOr<std::vector<LaunchHost>> ParseHostsFile(absl::string_view where,
                                                       absl::string_view text);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_HOST_LIST_H_
