// Jobs without central servers on virtual time: real shards and the real coordinator, with sites that
// come, leave, freeze and die.
//
// Updates are integers, so that the values of every replica are known to the bit from the pushes that
// were folded into it or into what it copied. At the end all replicas that are left must have folded the
// same ones, but for the last push of a member that was lost.
#ifndef TESSERA_TESTS_SIM_REPLICA_JOB_H_
#define TESSERA_TESTS_SIM_REPLICA_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/method/recipe.h"
#include "tests/sim/dice.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/replica_server.h"
#include "tests/sim/replica_worker.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/faulty_network.h"

namespace tessera {

struct ReplicaJobOptions {
  uint64_t seed = 0;
  bool faults = true;
  ReplicaMutation mutation = ReplicaMutation::kNone;
};

struct ReplicaJobOutcome {
  // The first thing that was wrong; nullopt: all held.
  std::optional<std::string> violation;
  bool finished = false;  // the job ended as a success
  uint64_t pairs = 0;     // of replicas that were compared
  uint64_t pushes = 0;    // folded, over all replicas
  uint64_t lost = 0;      // members
  uint64_t servers_lost = 0;
  uint64_t servers_joined = 0;  // they copied a replica and were there at the end
  uint64_t partial_pushes = 0;
};

class ReplicaJob {
 public:
  explicit ReplicaJob(ReplicaJobOptions options);
  ReplicaJobOutcome Run();

 private:
  void StartServer(uint32_t rank);
  void StartWorker(std::optional<uint32_t> rank);
  void PlanFaults();
  void Strike();
  void KillServer();
  void StartSite();
  ReplicaServer* LiveServer(uint32_t rank);
  bool AllOver() const;
  // Replicas that take part, by rank.
  std::vector<ReplicaServer*> Ready();
  void CheckReplicas();
  void Violate(absl::string_view what);

  const ReplicaJobOptions options_;
  Dice dice_;
  EventQueue queue_;
  FaultyNetwork network_;
  const int workers_count_;
  const uint64_t steps_;
  const Recipe recipe_;
  const absl::Duration step_time_;
  std::unique_ptr<SimCoordinator> coordinator_;
  ReplicaWorld world_;
  std::vector<std::unique_ptr<ReplicaServer>> servers_;
  std::vector<std::unique_ptr<ReplicaWorker>> workers_;
  NodeId chaos_;
  absl::Time faults_end_;
  uint64_t servers_lost_ = 0;
  uint64_t pairs_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_REPLICA_JOB_H_
