// A server process's part in the control plane: whether the coordinator is here, and where its state is kept.
//
//   embedded  it lives in server 0, its state in a folder. A process that is started in server 0's place goes on
//             with the job from there
//   elected   with cluster.coordinator.etcd every server stands for election. The one that is elected goes on
//             from the state in etcd, and when it is not heard of any more another one does
#ifndef TESSERA_SERVER_SERVER_CONTROL_H_
#define TESSERA_SERVER_SERVER_CONTROL_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/etcd/coordinator_key.h"
#include "common/etcd/etcd_client.h"
#include "proto/coordinator_state.pb.h"
#include "proto/job.pb.h"
#include "server/checkpoint/state_file.h"
#include "server/control/job_facts.h"
#include "server/election/etcd_store.h"
#include "server/election/server_election.h"
#include "server/rpc/live_coordinator.h"
#include "server/server_checkpoints.h"

namespace tessera {

// The control plane of server 0, or of any server where they elect.
class ServerControl {
 public:
  // `facts` follow from `job`. Without `is_kept` nothing is kept in a folder, and nothing was.
  ServerControl(const v1::Job& job, const JobFacts& facts, bool is_kept);
  // Gives the coordinator up; another server may be elected at once.
  ~ServerControl();

  bool is_elected() const { return etcd_ != nullptr; }
  // Whether the state is kept: whoever comes in this process's place, or another server, can then go on from where
  // its coordinator was.
  bool is_kept() const { return etcd_ != nullptr || !folder_.empty(); }
  // Embedded: where that lies; empty: nowhere.
  const std::string& folder() const { return folder_; }
  LiveCoordinator* live() { return &live_; }

  // Embedded: finds what an earlier process has left. Elected: looks at the members' addresses.
  //   kInvalidArgument     those are none
  //   kFailedPrecondition  another process is the coordinator of this job
  //   kDataLoss            what was kept is broken
  //   and durable_file.h's codes
  absl::Status Open();
  // Embedded: the job goes on from what was found.
  bool goes_on() const { return found_ != nullptr; }
  // Embedded: the coordinator is here, and keeps its state. `checkpoints` are prepared, and outlive this.
  absl::Status Begin(ServerCheckpoints* checkpoints);

  struct Stand {
    // The address at which the others reach this server.
    std::string address;
    // The checkpoints, which are prepared and outlive this.
    ServerCheckpoints* checkpoints = nullptr;
    // The run that this server has part in; 0: none.
    std::function<uint64_t()> run;
  };
  // Elected: stands from now on.
  void StandForElection(Stand stand);
  // Elected: stands no more. A coordinator that is here stays for a lease.
  void StopElection() {
    if (election_ != nullptr) election_->Stop();
  }
  // Elected: host:port of the coordinator (CoordinatorFinder::Find).
  absl::StatusOr<std::string> Find() { return finder_->Find(); }

 private:
  absl::Status OpenFolder();
  // Takes up `state`, where the job can go on from there.
  void Take(v1::CoordinatorState state);
  absl::Status Install(ServerCheckpoints* checkpoints, StateStore* store);
  absl::Status OnElected(int64_t revision);
  void OnDeposed(absl::string_view why);

  const JobFacts facts_;
  const std::string folder_;      // empty: nothing is kept
  const bool is_asked_for_;       // by a key of its own
  const char* const folder_key_;  // of the job, which it follows from
  const std::vector<std::string> members_;
  const std::vector<std::string> servers_;
  const absl::Duration away_timeout_;
  std::unique_ptr<EtcdClient> etcd_;  // nullptr: embedded
  std::unique_ptr<CoordinatorFinder> finder_;
  std::unique_ptr<StateFile> file_;
  std::unique_ptr<EtcdStore> store_;  // of the tenure; the election's thread's
  std::unique_ptr<Coordinator> found_;
  v1::CoordinatorWord word_;
  Stand stand_;
  LiveCoordinator live_;
  std::unique_ptr<ServerElection> election_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SERVER_CONTROL_H_
