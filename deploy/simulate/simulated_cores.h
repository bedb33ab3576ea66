// A simulated worker's questions for the keys of cores, which come while minibatches are computed.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_CORES_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_CORES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "deploy/simulate/client_options.h"
#include "deploy/simulate/simulated_process.h"
#include "deploy/simulate/simulated_world.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

class SimulatedServer;

// Lives as long as the simulation: messages refer to it.
class SimulatedCores {
 public:
  // All outlive it.
  SimulatedCores(const SimulatedClientOptions* options, SimulatedWorld* world,
                 SimulatedProcess* process,
                 const std::vector<std::unique_ptr<SimulatedServer>>* servers);

  // See ParameterClient.
  void Ask(uint64_t number);
  absl::StatusOr<Cores> Take();
  // What was moved for it.
  const Traffic& traffic() const { return traffic_; }

  // A server's answer to question `call`, called when it is given. Returns the bytes of the payload.
  int64_t Answer(ShardId server, uint64_t call, absl::StatusOr<std::shared_ptr<const Core>> core);

 private:
  const SimulatedClientOptions& options_;
  SimulatedWorld& world_;
  SimulatedProcess& process_;
  const std::vector<std::unique_ptr<SimulatedServer>>& servers_;
  const int64_t request_wire_bytes_;
  Traffic traffic_;

  // The question under way.
  uint64_t call_ = 0;
  uint64_t wanted_ = 0;
  size_t left_ = 0;
  uint64_t ticket_ = 0;  // of the wait for it; 0: nobody waits
  Cores cores_;
  absl::Status failed_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_CORES_H_
