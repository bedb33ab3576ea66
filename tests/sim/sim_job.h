// A whole job on virtual time: the real coordinator, the real shards, simulated workers, and a plan
// of faults, all drawn from one seed. The same seed gives the same run.
#ifndef TESSERA_TESTS_SIM_SIM_JOB_H_
#define TESSERA_TESTS_SIM_SIM_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"
#include "server/control/job_facts.h"
#include "tests/sim/checker.h"
#include "tests/sim/dice.h"
#include "tests/sim/drawn_model.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/harm.h"
#include "tests/sim/mutation.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_folder.h"
#include "tests/sim/sim_host.h"
#include "tests/sim/faulty_network.h"
#include "tests/sim/sim_rogue.h"
#include "tests/sim/sim_server.h"
#include "tests/sim/sim_worker.h"
#include "tests/sim/subnet_entries.h"

namespace tessera {

enum class SimMethod {
  kDataParallel,
  kLocalSgd,
  kAsyncSgd,
  kAsyncSgdDeltas,
  kAsyncSgdInverse,
  kSoftsync,
  kSoftsyncInverse,
  kSsp,
  kDiloco,
  kDilocoQuorum,
  kDilocoAsynchronous,
  kIst,
  kSlimDp,
  kSlimDpAsynchronous,
  kLocalSgdOverlapped,
};

struct SimOptions {
  uint64_t seed = 0;
  SimMethod method = SimMethod::kDataParallel;
  Mutation mutation = Mutation::kNone;
  // Without faults nothing is lost and nobody dies, but messages still overtake each other.
  bool faults = true;
  // Every shard has a standby, and servers may die and come back.
  bool standbys = false;
  // The coordinator's state is kept, and its process may die.
  bool coordinator_dies = false;
  // Checkpoints are kept, and servers may die that nothing takes the place of: the job goes back.
  bool checkpoints = false;
  // One matrix and f32, whatever the seed says.
  bool plain = false;
  // Servers are asked to end, and started again when they have: of every other seed nothing else happens to them.
  bool leaves = false;
  // One more member makes so many calls in any order, and ends.
  int rogue_calls = 0;
};

struct SimOutcome {
  // The first thing that was wrong; nullopt: all held.
  std::optional<std::string> violation;
  bool finished = false;  // the job ended as a success
  bool judged = false;    // and with all servers there, so that its end was compared
  uint64_t commits = 0;   // over all shards
  uint64_t lost = 0;      // members
  uint64_t joined_late = 0;
  uint64_t partial_pushes = 0;
  uint64_t takeovers = 0;
  uint64_t left = 0;          // servers that were asked to end and did
  uint64_t coordinators = 1;  // processes
  bool forgiven = false;      // the job could not go on from what was kept
  uint64_t checkpoints = 0;   // whole ones
  uint64_t rollbacks = 0;     // to one of them
  bool drained = false;
  Checker::Reached reached;
  uint64_t several = 0;            // jobs whose model has more than one parameter
  uint64_t struck_evaluating = 0;  // faults while an evaluation stood
  int rogue_calls = 0;             // that it made as a member
  int rogue_pushes = 0;            // of these, that a shard took
  bool protected_again = false;    // all shards had standbys some time after the last fault
  absl::Duration duration;
  // Equal for equal runs.
  uint64_t fingerprint = 0;
};

// Where the server of a rank is reached, whichever process that is.
class ServerDoor final : public ShardDoor {
 public:
  NodeId node() const override { return server_->node(); }
  SimServer* Find(ShardId shard) override { return server_->Find(shard); }
  void SetServer(SimServer* server) { server_ = server; }

 private:
  SimServer* server_ = nullptr;
};

class SimJob {
 public:
  explicit SimJob(SimOptions options);
  SimOutcome Run();

 private:
  static constexpr absl::Duration kLease = absl::Seconds(1);

  Shard::Options ShardOptions(ShardId shard);
  void StartServers();
  void StartWorker(std::optional<uint32_t> rank);
  void StartRogue();
  void PlanFaults();
  // Now and then, until faults end: one of the faults below.
  void Strike();
  // Before the start a job waits for its workers: somebody starts those again that were given up.
  void KeepWorkers();
  void CrashWorker();
  void FreezeSomebody();
  void CutSomeLink();
  void KillServer();
  // --- checkpoints (sim_restarts.cc) ---
  void KeepCheckpoints(JobFacts* facts, SimCoordinator::Options* control);
  void OnWhole(const SimFolder::Whole& whole);
  SimServer::Made MakeShard(ShardId shard);
  void StartServer(int rank);
  // Some time after its process has ended.
  void RestartServer(int rank);
  void EndServer(int rank);
  void StrikeServer();
  void LeaveServer(int rank);
  // A server has ended as it was asked to: in lockstep nothing is done that would have to be done again.
  void OnServerLeft(int rank);
  bool OnlyLeaves() const;
  void Rejoin(uint32_t rank);
  // Its process stands still, or dies alone or with others.
  void StrikeCoordinator();
  // --- where shards have standbys (sim_standbys.cc) ---
  void StartHost(uint32_t rank);
  // Some time after its process has ended.
  void RestartHost(uint32_t rank);
  // It is gone, or cannot be reached, for at most so long.
  void HarmHost(const SimHost& host, absl::Duration lasts);
  double ChanceOfLoss() const;
  void StrikeHost();
  void LeaveHost();
  void KillHost();
  void FreezeHosts();
  void CutHostLink();
  SimHost* LatestHost(uint32_t rank) const;
  // A host of those that live; nullptr: none does.
  SimHost* SomeHost();
  void CheckProtected();
  void StartLateWorker();
  bool AllOver() const;
  // --- how it ends (sim_job_end.cc) ---
  // What the coordinator would tell people: it has just looked at leases.
  void OnStatus(const v1::JobStatus& status, uint64_t coordinator);
  // Whether the member may have ended so.
  void CheckLoss(const MemberRecord& record);
  // Whether its worker, or one that came in its place, was kept from coming back.
  bool MayMiss(const MemberRecord& record) const;
  // Whether the job may have.
  void CheckFailure(const std::string& why);
  std::set<MemberId> Lost();
  std::string Describe() const;
  SimOutcome Judge();

  const SimOptions options_;
  Dice dice_;
  EventQueue queue_;
  FaultyNetwork network_;
  const int servers_count_;
  const int workers_count_;
  const uint64_t epochs_;
  const uint64_t steps_;  // 0: the job counts epochs
  DrawnModel drawn_;
  const v1::Job job_;
  const Recipe recipe_;
  const absl::Duration step_time_;
  const std::unique_ptr<SubnetEntries> subnets_;  // nullptr: the method trains none
  const ModelShape shape_;
  Checker checker_;
  std::unique_ptr<SimCoordinator> coordinator_;
  std::unique_ptr<SimFolder> folder_;  // nullptr: no checkpoints are kept
  std::vector<SimServer*> servers_;    // the latest of each rank
  std::vector<std::unique_ptr<SimServer>> all_servers_;
  std::vector<std::unique_ptr<ServerDoor>> doors_;
  HostDirectory directory_;
  std::vector<std::unique_ptr<SimHost>> hosts_;  // all that ever were
  bool protected_again_ = false;
  bool has_hung_ = false;  // a worker, and so perhaps a round
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::unique_ptr<SimRogue> rogue_;  // nullptr: there is none
  NodeId chaos_;
  absl::Time faults_end_;
  bool server_killed_ = false;
  uint64_t left_ = 0;
  Manifest last_whole_;
  Harm harm_;
  // That were judged. Whoever goes on as the coordinator has them, too.
  std::set<std::pair<MemberId, std::string>> losses_;
  std::set<std::string> failures_;
  uint64_t struck_evaluating_ = 0;
  uint64_t coordinators_ = 1;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_JOB_H_
