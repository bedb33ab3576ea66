// The door for other workers, in methods in which workers train different layers.
#ifndef TESSERA_WORKER_LAYER_DOOR_H_
#define TESSERA_WORKER_LAYER_DOOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/layer_partners.h"
#include "worker/prepared_worker.h"
#include "worker/worker_options.h"

namespace tessera {

// nullptr where no other worker calls this one; where it was told an address nevertheless, it logs that.
//   kInvalidArgument  others could not call the address, or anybody could
absl::StatusOr<std::unique_ptr<LayerPartners>> OpenLayerDoor(const WorkerOptions& options,
                                                             const PreparedWorker& worker);

}  // namespace tessera

#endif  // TESSERA_WORKER_LAYER_DOOR_H_
