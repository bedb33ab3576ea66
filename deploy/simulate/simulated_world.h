// What all simulated processes share: time, machines and the network between them.
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATED_WORLD_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATED_WORLD_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "deploy/simulate/event_queue.h"
#include "deploy/simulate/machine.h"
#include "deploy/simulate/network.h"

namespace tessera {

struct SimulatedWorld {
  SimulatedWorld(int machine_count, int cores, const SimNetwork::Options& options)
      : machines(MakeMachines(machine_count, cores, &events)),
        network(options, &events, &machines) {}

  absl::Time time() const { return ToTime(events.now()); }

  static std::vector<std::unique_ptr<SimMachine>> MakeMachines(int count, int cores,
                                                               SimEventQueue* events) {
    std::vector<std::unique_ptr<SimMachine>> machines;
    for (int i = 0; i < count; ++i) machines.push_back(std::make_unique<SimMachine>(cores, events));
    return machines;
  }

  SimEventQueue events;
  std::vector<std::unique_ptr<SimMachine>> machines;
  SimNetwork network;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATED_WORLD_H_
