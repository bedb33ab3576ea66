// Which of a job's processes run on which of its machines.
//
//   servers   those that the job lists with addresses run where these say; others are dealt rank by rank, host by host,
//             so that a shard's standby, which the next server is, is on another host where there are two
//   workers   dealt in the same way; where servers are replicas each worker is beside the server of its rank
// With linear_servers of layer_separation servers follow the workers that have the same layers, in turn, unless the job
// lists addresses or a host names its number of servers.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_PLACEMENT_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_PLACEMENT_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/method/recipe.h"
#include "deploy/cli/launch/host_list.h"
#include "proto/job.pb.h"

namespace tessera {

struct PlacedProcess {
  size_t host = 0;
  // Where the others call it; empty: nobody does.
  std::string address;
};

struct JobPlacement {
  // By rank.
  std::vector<PlacedProcess> servers;
  std::vector<PlacedProcess> workers;
  // Whether each shard has a standby.
  bool has_standbys = false;

  bool HasWorkers(size_t host) const;
};

// Places the processes. `taken` are the ports of each host at which somebody listens; those that are chosen are free
// ones from `port` on.
//   kInvalidArgument  all that is wrong, one line each: an address of no host, counts of hosts that do not add up
absl::StatusOr<JobPlacement> PlaceJob(const v1::Job& job, const Recipe& recipe,
                                      const std::vector<LaunchHost>& hosts,
                                      const std::vector<std::set<int>>& taken, int port);

// The placement as a table, one line for each host; `notes` are the last column's.
std::string PlacementTable(const std::vector<LaunchHost>& hosts, const JobPlacement& placement,
                           const std::vector<std::string>& notes);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_PLACEMENT_H_
