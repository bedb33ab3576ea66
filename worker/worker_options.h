// What a worker process is started with.
#ifndef TESSERA_WORKER_WORKER_OPTIONS_H_
#define TESSERA_WORKER_WORKER_OPTIONS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/devices.h"

namespace tessera {

class LayerPartners;
class OwnModel;
struct PreparedWorker;

struct WorkerOptions {
  std::string job_path;
  // "a.b=v", as given by --set.
  std::vector<std::string> overrides;
  // The wanted rank; -1: the lowest free one.
  int rank = -1;
  // Where other workers reach this one, host:port, in methods in which they need to; empty: loopback, any port.
  std::string listen;
  // host:port of server 0; empty: the first address in cluster.servers.
  std::string coordinator;
  // The devices that there are.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>(absl::string_view device, int threads,
                                                         const DeviceOptions& options)>
      make_backend = CreateBackend;
  // Opens the way to other workers, in methods in which they train different layers (OpenLayerDoor); nullptr: such
  // methods are not for this worker.
  std::function<absl::StatusOr<std::unique_ptr<LayerPartners>>(const WorkerOptions& options,
                                                               const PreparedWorker& worker)>
      open_layers = nullptr;
  // The worker's minibatches are computed by this model, which outlives the worker; nullptr: by a replica of the model
  // that the job describes.
  OwnModel* own_model = nullptr;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_WORKER_OPTIONS_H_
