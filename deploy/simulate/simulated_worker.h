// One worker, from joining to leaving: what worker/worker_membership.cc is in a real job, with the very
// same train loop.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_WORKER_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/method/recipe.h"
#include "deploy/simulate/simulated_activations.h"
#include "deploy/simulate/simulated_client.h"
#include "deploy/simulate/simulated_coordination.h"
#include "deploy/simulate/simulated_coordinator.h"
#include "deploy/simulate/simulated_learner.h"
#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_server.h"
#include "deploy/simulate/simulated_world.h"
#include "deploy/simulate/worker_pace.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/order_cache.h"
#include "worker/replica/make_replica.h"
#include "worker/train/train_loop.h"

namespace tessera {

// What all workers of a simulation have in common. Outlives them.
struct WorkerSurroundings {
  const v1::Job* job = nullptr;
  const Recipe* recipe = nullptr;
  std::string job_digest;
  const Datasets* data = nullptr;
  OrderCache* orders = nullptr;
  SimulatedWorld* world = nullptr;
  SimulatedCoordinator* coordinator = nullptr;
  const std::vector<std::unique_ptr<SimulatedServer>>* servers = nullptr;
  const ModelShape* shape = nullptr;
  // Makes what a worker trains.
  std::function<absl::StatusOr<std::unique_ptr<Learner>>(Rank, Exchange first, const LayerEnds&)>
      make_learner;
  SimulatedInboxes* inboxes = nullptr;
  // False: stub learners, whose values nobody looks at.
  bool moves_values = true;
  size_t stack_bytes = 0;
};

// Lives as long as the simulation, whatever becomes of the worker: events refer to it.
class SimulatedWorker {
 public:
  struct Options {
    Rank rank;
    int machine = 0;
    WorkerPace pace;
    std::string description;
    // Time from its admission to its crash; nullopt: it does not crash.
    std::optional<SimNanos> crashes_after;
    // Called when the worker crashes.
    std::function<void()> on_crash;
    // Called where it cannot join a job that goes on, and will not by waiting.
    std::function<void(const absl::Status&)> on_refused;
  };

  // Codes as Fiber::Create.
  static absl::StatusOr<std::unique_ptr<SimulatedWorker>> Create(
      Options options, const WorkerSurroundings* surroundings);

  // Joins now; where a live member holds its rank, as soon as that one's lease is over.
  void Start() { process_->Start(); }

  // Exchanges behind it; 0 before it is admitted.
  uint64_t exchanges() const { return client_ == nullptr ? 0 : client_->traffic().exchanges; }
  // Minibatches behind it, with those before it joined.
  uint64_t steps() const { return loop_ == nullptr ? 0 : loop_->steps(); }
  bool crashed() const { return process_->crashed(); }
  bool ended() const { return process_->ended(); }
  // Why the worker ended, once it has, where that was not the end of the job.
  const absl::Status& outcome() const { return outcome_; }

 private:
  SimulatedWorker(Options options, const WorkerSurroundings* surroundings)
      : options_(std::move(options)), around_(*surroundings) {}

  absl::Status Live();
  absl::StatusOr<v1::JoinReply> Join();
  absl::Status Train(const v1::JoinReply& admission);
  // Where workers have halves of the layers: this one's end of what is between them.
  LayerEnds BeginLayers(const v1::JoinReply& admission);
  void SetWorkers(const v1::WorkerList& list);
  absl::Status Leave(const absl::Status& why);
  v1::WorkerReport Report() const;
  // The lease: a request every now and then, and its answer.
  void Renew();
  void RenewAfter(SimNanos time);
  // Now, and from now on: who takes part is not known.
  void RenewSoon();
  void AskToRenew();
  void OnRenewed();
  void Crash();

  const Options options_;
  const WorkerSurroundings& around_;
  SimNanos renew_interval_ = 0;
  MemberId member_;
  bool renewing_ = false;
  uint64_t next_renewal_ = 0;
  uint64_t drain_seen_ = 0;
  uint64_t workers_known_ = 0;
  uint64_t servers_known_ = 0;
  absl::StatusOr<v1::RenewReply> renewed_;
  absl::Status lost_;
  absl::Status outcome_;
  std::unique_ptr<PacedWork> work_;
  std::unique_ptr<SimulatedSender> sender_;
  std::unique_ptr<SimulatedInbox> inbox_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<SimulatedClient> client_;
  std::unique_ptr<SimulatedCoordination> coordination_;
  std::unique_ptr<TrainLoop> loop_;
  // Last: its end runs what is left of the body, which needs all of the above.
  std::unique_ptr<SimulatedProcess> process_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_WORKER_H_
