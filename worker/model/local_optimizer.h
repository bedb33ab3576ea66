// The worker's own optimizer, where it takes local steps between exchanges.
#ifndef TESSERA_WORKER_MODEL_LOCAL_OPTIMIZER_H_
#define TESSERA_WORKER_MODEL_LOCAL_OPTIMIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/network.h"

namespace tessera {

// Owns the optimizer's state for one network: with momentum, as many floats as it has parameters.
//
// Threading: the network's thread.
class LocalOptimizer {
 public:
  // Both outlive the optimizer.
  //   kInvalidArgument    an optimizer other than sgd
  //   kResourceExhausted  no memory
  static absl::StatusOr<std::unique_ptr<LocalOptimizer>> Create(const v1::Optimizer& optimizer,
                                                                Network& network, Backend& backend);

  // Bytes of state, for the worker's sum.
  static int64_t MemoryNeeded(const v1::Optimizer& optimizer, const NetworkPlan& plan);

  // Moves the parameters by the gradients that TrainStep left.
  absl::Status Step();
  // The state becomes zero, as it was made.
  absl::Status Reset();

 private:
  LocalOptimizer(const SgdRates& rates, Network& network, Backend& backend)
      : rates_(rates), network_(network), backend_(backend) {}

  const SgdRates rates_;
  Network& network_;
  Backend& backend_;
  // Empty without momentum.
  Buffer<float> momentum_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_LOCAL_OPTIMIZER_H_
