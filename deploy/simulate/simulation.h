// A whole job on a simulated clock and network: the real train loops, shards, policies, rules and
// coordinator, and a model of how long everything takes.
//
//   computing   step_time for a minibatch on one core, differently fast for each worker, and less
//               for a subnet or half of the layers, whose activations go when it is done with them
//   sending     network.h, machine.h
//   folding     bytes / server_rate on each server's one thread
//   failing     each worker by itself, at a rate
//
// What is left out: connections that break, messages that are lost, retries, and the time that a
// worker's own copying takes.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATION_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "deploy/simulate/simulated_coordinator.h"
#include "deploy/simulate/simulated_learner.h"
#include "deploy/simulate/simulated_server.h"
#include "deploy/simulate/simulated_worker.h"
#include "deploy/simulate/simulated_world.h"
#include "deploy/simulate/step_share.h"
#include "deploy/simulate/stub_half_learner.h"
#include "deploy/simulate/stub_subnet_learner.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "proto/status.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/order_cache.h"
#include "worker/replica/batch_rows.h"

namespace tessera {

// How many times as long the slow worker's steps may be.
constexpr double kSlowWorkerMax = 1e6;

struct SimulationOptions {
  // Machines that the processes are dealt to, workers and servers each from the first one on; 0:
  // every process has one of its own.
  int machines = 0;
  // Where they are given: the machine of each server, in the place of the first ones. They are not shared by number:
  // one beside the linear workers, say, which are the last ones.
  std::vector<int> server_machines;
  // The cores of each machine; 0: as many as are wanted.
  int cores_per_machine = 0;
  // Every machine's link, in bytes per second each way, and the latency from any machine to any other; 0: no
  // limit, no latency.
  int64_t bandwidth = 0;
  SimNanos latency = 0;
  // The bytes that a core moves in a second between processes of one machine. Both ends work on a transfer, so that it
  // is half of the rate that bench/exchange measures.
  int64_t loopback_bandwidth = int64_t{1'000'000'000};
  // The time that a core spends on each message beside its bytes: calls, wake-ups, framing. A quarter of the small
  // round trip that bench/exchange measures, which is four messages.
  SimNanos message_cost = 60'000;
  // One minibatch of an average worker on the whole model; one on a subnet or half of the layers takes
  // its share of that (step_share.h). Worker k's take this times a number that is uniform in
  // [1 - speed_spread, 1 + speed_spread]; each minibatch again within step_jitter.
  SimNanos step_time = 0;
  double speed_spread = 0;
  // Worker 0's are this many times as long.
  double slow_worker = 1;
  double step_jitter = 0;
  // Bytes of parameters that a server folds per second; 0: it takes no time. 4 GB/s is what one core
  // does with plain sgd (bench/rules).
  int64_t server_rate = int64_t{4'000'000'000};
  // Crashes per worker and hour, exponentially distributed.
  double fail_rate = 0;
  // How long after a crash a new worker asks for the rank, which it gets once the lease of the one that
  // crashed is over; nullopt: never.
  std::optional<SimNanos> restart_after;
  // Updates are the same tiny ones always, and nothing is evaluated: only times and traffic mean
  // something.
  bool stub_gradients = false;
};

// It has more fields than other classes, as it owns every party of the job, which refer to each other.
//
// One thread. Deterministic: the same job, data and options take the same course.
class Simulation {
 public:
  // `data` outlives the simulation. `job` is resolved (common/config/job_reader.h).
  //   kInvalidArgument    an option is out of its range, there are more workers than neurons of a
  //                       layer that are dealt to them, or stub gradients are to reach a tau
  //   kResourceExhausted  no memory for so many workers
  // and what RecipeFor and CreateBackend return.
  static absl::StatusOr<std::unique_ptr<Simulation>> Create(const v1::Job& job,
                                                            const SimulationOptions& options,
                                                            const Datasets* data);
  ~Simulation();

  // Runs up to `events` events. True once the job has ended.
  bool Run(int64_t events);
  // Has the job evaluate soon, and end.
  void Drain(absl::string_view reason);

  double seconds() const { return ToSeconds(world_->events.now()); }
  uint64_t events() const { return world_->events.events(); }
  uint64_t exchanges() const;
  v1::JobStatus Status() const;
  // How the job ended, once it has: OK, or why it failed.
  absl::Status outcome() const;
  // The report of a job that has ended or failed, with the options under "simulation".
  std::string Report() const;
  const Coordinator& coordinator() const { return coordinator_->state(); }
  const std::vector<std::unique_ptr<SimulatedServer>>& servers() const { return servers_; }

 private:
  Simulation(const v1::Job& job, const SimulationOptions& options, const Datasets* data)
      : job_(job), options_(options), data_(*data) {}

  absl::Status Build();
  absl::Status BuildServers(const ModelShape& shape);
  absl::Status BuildLearning(const ModelShape& shape);
  absl::StatusOr<std::unique_ptr<Learner>> MakeLearner(Rank rank, Exchange first,
                                                       const LayerEnds& ends);
  absl::Status AddWorker(Rank rank, uint64_t life);
  void OnCrash(Rank rank, uint64_t life);
  int MachineOf(int process, int first) const;
  int MachineOfServer(int rank) const;
  // Where every process has a machine of its own. Replicas are on the machines of the workers beside them.
  int first_worker_machine() const;
  // The job stands still: no minibatch and no exchange for very long.
  void CheckProgress();

  const v1::Job job_;
  const SimulationOptions options_;
  const Datasets& data_;
  std::string digest_;
  Recipe recipe_;
  std::unique_ptr<Backend> backend_;
  InputRows input_;
  ModelShape shape_;  // of what is exchanged
  std::optional<StepShare> step_share_;
  std::unique_ptr<StubArrays> stub_;
  StubSubnetLearner::Surroundings stub_subnets_;
  std::unique_ptr<StubHalfLearner::Surroundings> stub_halves_;
  OrderCache orders_;
  // Everything below refers to the world.
  std::unique_ptr<SimulatedWorld> world_;
  std::unique_ptr<SimulatedCoordinator> coordinator_;
  std::vector<std::unique_ptr<SimulatedServer>> servers_;
  WorkerSurroundings surroundings_;
  SimulatedInboxes inboxes_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  absl::Status failed_;
  SimNanos progress_interval_ = 0;
  uint64_t progress_seen_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATION_H_
