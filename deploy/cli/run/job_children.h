// The servers and workers of one `tessera run`, and what it means that one of them has ended.
#ifndef TESSERA_DEPLOY_CLI_RUN_JOB_CHILDREN_H_
#define TESSERA_DEPLOY_CLI_RUN_JOB_CHILDREN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/cli/run/child_place.h"
#include "deploy/cli/run/child_process.h"
#include "deploy/cli/run/memory_kills.h"
#include "deploy/cli/run/run_folders.h"
#include "proto/job.pb.h"
#include "proto/status.pb.h"

namespace tessera {

// After the job's end, or the second Ctrl-C: how long children may take before they are killed.
constexpr absl::Duration kChildEndMax = absl::Seconds(10);
// The time that the coordinator has to say how the job stands, once another process has ended.
constexpr absl::Duration kLastWordsMax = absl::Seconds(1);

// Owns the processes, and kills those that are left when it goes: workers first. One thread.
class JobChildren {
 public:
  // `job` and `folders` outlive it. `tell` gets a sentence on each child that has ended without the job.
  //   kInvalidArgument, kUnimplemented  the job's method is none
  //   kNotFound                         a program is not where it should be
  static absl::StatusOr<std::unique_ptr<JobChildren>> Create(
      const v1::Job& job, const RunFolders* folders, std::function<void(const std::string&)> tell);
  ~JobChildren();

  // Sets the file that the children read the job from, and "a.b=v" on top of it.
  void SetJob(std::string path, std::vector<std::string> overrides);
  // Sets flags of server 0 beside those that all have.
  void SetFirstServerFlags(std::vector<std::string> flags) {
    first_server_flags_ = std::move(flags);
  }
  // Sets the shell command that each worker is, in place of tessera-worker. What it needs to join stands in its
  // environment: TESSERA_JOB, TESSERA_RANK and TESSERA_COORDINATOR.
  void SetWorkerCommand(std::string command) { worker_command_ = std::move(command); }
  // Has the children run elsewhere. `place` outlives this object; null: they run here.
  void SetPlace(const ChildPlace* place) { place_ = place; }
  // Tells where children that are started from now on find the coordinator.
  void SetCoordinator(std::string address) { coordinator_ = std::move(address); }

  // Starts the next child, in the order of ranks. The codes are those of ChildProcess::Start.
  absl::Status StartServer();
  absl::Status StartWorker();

  // The server that has the coordinator; there is one once it was started.
  ChildProcess& first_server() { return servers_[0]; }
  // The files to which the first server writes its addresses and, at the end, the report.
  std::string AddressPath() const;
  std::string ReportPath() const;
  // The first server has said how the job ended: how it ends itself matters no more, unless by a signal.
  void ForgiveFirstServer();

  // An error of a server that has ended with one, where the job cannot go on without it. `status` is the latest that
  // is known of the job.
  absl::Status CheckServers(const std::optional<v1::JobStatus>& status);
  // An error that says which worker's end ends the job, as CheckServers for servers; also where all workers have
  // ended, but the servers do not for long. OK where none was started here.
  absl::Status CheckWorkers(const std::optional<v1::JobStatus>& status);
  // Tells of each child that a signal has ended, unless it was told, or `known` says so.
  void TellDeaths(absl::string_view known);

  // "; its parameters are lost; ...", of a server that a signal has ended while the job trained; empty where they are
  // not.
  std::string LostWith(const ChildProcess::Exit& server) const;

  // Whether all have ended; `but_first_server`, whether that has or not.
  bool HaveEnded(bool but_first_server = false);
  // The names of the children that have not ended: "server 1, worker 0".
  std::string NamesOfRunning();
  void Kill();

 private:
  struct EndedWorker {
    absl::Time seen = absl::InfiniteFuture();
    std::optional<std::map<uint64_t, uint64_t>>
        steps;  // of members, in the first status without it
    bool is_told = false;
    bool is_over = false;  // the others go on, and that is told, too
  };

  JobChildren(const v1::Job& job, const RunFolders* folders) : job_(job), folders_(*folders) {}
  std::vector<std::string> CommonArguments(size_t rank) const;
  absl::StatusOr<ChildProcess> Start(absl::string_view kind, size_t rank,
                                     ChildProcess::Options child) const;
  std::string LogPath(const std::string& name) const {
    return absl::StrCat(folders_.logs(), "/", name, ".log");
  }
  ChildProcess::Options Options(std::string name, const std::string& program, size_t rank);
  // An error where all workers have died, and nobody else takes part whom the coordinator knows: it need not wait
  // for their leases. OK: it may know better.
  absl::Status CheckDeadWorkers(const v1::JobStatus& status);
  // Whether the others go on without `rank`, which has ended: members have made steps since the coordinator knew
  // it; or the job has ended.
  bool OthersGoOn(size_t rank, const v1::JobStatus& status);

  const v1::Job& job_;
  const RunFolders& folders_;
  const ChildPlace* place_ = nullptr;
  MemoryKills memory_kills_;
  std::function<void(const std::string&)> tell_;
  std::string server_program_;
  std::string worker_program_;
  std::string worker_command_;
  std::vector<std::string> first_server_flags_;
  bool servers_may_go_ = false;  // they are replicas, or have standbys
  std::string job_path_;
  std::vector<std::string> overrides_;
  std::string coordinator_;
  std::vector<ChildProcess> servers_;
  std::vector<bool> server_noticed_;
  std::vector<ChildProcess> workers_;
  std::vector<EndedWorker> ended_;  // by rank
  absl::Time workers_ended_ = absl::InfiniteFuture();
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_JOB_CHILDREN_H_
