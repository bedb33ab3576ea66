// The machines of a launched job as the place where its processes run.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_REMOTE_PLACE_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_REMOTE_PLACE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/cli/launch/host_list.h"
#include "deploy/cli/launch/placement.h"
#include "deploy/cli/launch/ssh.h"
#include "deploy/cli/run/child_place.h"

namespace tessera {

// A machine that is ready to run processes of the job.
struct ReadyHost {
  LaunchHost host;
  // The bundle there, and the folder of this job (supervised_files.h).
  std::string bundle;
  std::string folder;
};

// Each process becomes an ssh connection to `tessera attach` on its host. Logs are HOST/KIND-RANK.log in the run's
// folder of logs.
class RemotePlace final : public ChildPlace {
 public:
  RemotePlace(Ssh ssh, std::vector<ReadyHost> hosts, JobPlacement placement, absl::Duration grace)
      : ssh_(std::move(ssh)),
        hosts_(std::move(hosts)),
        placement_(std::move(placement)),
        grace_(grace) {}

  absl::Status PrepareLogs(const RunFolders& folders) const override;
  void Place(absl::string_view kind, size_t rank, const RunFolders& folders,
             ChildProcess::Options* child) const override;
  std::string job_path() const override;
  std::string coordinator() const override { return placement_.servers[0].address; }
  std::string coordinator_host() const override {
    return hosts_[placement_.servers[0].host].host.name;
  }

 private:
  const Ssh ssh_;
  const std::vector<ReadyHost> hosts_;
  const JobPlacement placement_;
  const absl::Duration grace_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_REMOTE_PLACE_H_
