// How long one worker computes, on a core of its simulated machine.
#ifndef TESSERA_DEPLOY_SIMULATE_WORKER_PACE_H_
#define TESSERA_DEPLOY_SIMULATE_WORKER_PACE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "common/method/recipe.h"
#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_world.h"
#include "deploy/simulate/step_share.h"

namespace tessera {

// Where workers have halves of the layers: shares of a minibatch on the whole model.
struct HalfPace {
  // For a worker that has data: what it does before its activations go, and once their gradient has come.
  double forward = 0;
  double backward = 0;
  // For a linear worker: what it does between a batch and its answer.
  double answer = 0;
};
HalfPace HalfPaceOf(const StepShare& share, const LayerSplit& split, Rank rank);

struct WorkerPace {
  uint64_t seed = 0;
  uint64_t worker = 0;
  // One minibatch of batch_size rows on the whole model; one on a subnet or half of the layers takes its share of it.
  SimNanos step_time = 0;
  const StepShare* share = nullptr;
  std::optional<HalfPace> half = std::nullopt;
  // Evaluating a row takes a third of training the whole model on it: there is no way back through
  // the network.
  bool evaluates = true;
  // Each minibatch takes step_time times a number that is uniform in [1 - jitter, 1 + jitter].
  double jitter = 0;
  int64_t batch_size = 1;
};

// How much faster and slower than `step_time` a job's workers are.
struct SpeedSpread {
  // Each worker's factor is uniform in [1 - spread, 1 + spread], drawn once.
  double spread = 0;
  // Worker 0's factor is multiplied by this.
  double slow_worker = 1;
};
SimNanos StepTimeOf(uint64_t seed, uint64_t worker, SimNanos step_time, const SpeedSpread& speeds);

// Called by the worker's process, which waits meanwhile. kCancelled: it is to end.
class PacedWork {
 public:
  // All outlive it.
  PacedWork(const WorkerPace& pace, SimulatedWorld* world, int machine, SimulatedProcess* process)
      : pace_(pace), world_(*world), machine_(machine), process_(*process) {}

  // Takes the time of `share` of minibatch `step`.
  absl::Status Train(uint64_t step, double share);
  absl::Status Evaluate(size_t rows);

  const WorkerPace& pace() const { return pace_; }

 private:
  absl::Status Work(SimNanos work);

  const WorkerPace pace_;
  SimulatedWorld& world_;
  const int machine_;
  SimulatedProcess& process_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_WORKER_PACE_H_
