// Values that belong into a device's memory: received as the codec wrote them, and read there.
#ifndef TESSERA_WORKER_RPC_DEVICE_VALUES_H_
#define TESSERA_WORKER_RPC_DEVICE_VALUES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/device_entries.h"

namespace tessera {

// One thread.
class DeviceValues {
 public:
  // `device` outlives it.
  DeviceValues(Backend* device, std::shared_ptr<DeviceEntrySets> sets)
      : device_(*device), sets_(std::move(sets)) {}

  // Host memory for the answer of `server`, until the next one. It may be written on any thread.
  //   kResourceExhausted  no memory
  absl::StatusOr<char*> Receive(size_t server, int64_t bytes);

  // What Receive gave room for is there: the payload of `keys`. Queued, and in use until Finish.
  absl::Status Write(size_t server, const CodedKeys& keys, const ShardSlices& slices,
                     const ParameterArrays& values);
  // Writes a payload that has the entries of `sparse` alone; other values stay as they are.
  absl::Status WriteSparse(size_t server, const CodedKeys& keys, const ShardSlices& slices,
                           const std::shared_ptr<const SparseKeys>& sparse,
                           const ParameterArrays& values);
  absl::Status Finish() { return device_.Finish(); }

 private:
  struct Server {
    Buffer<char> host;
    Buffer<char> bytes;
    Buffer<float> entries;
  };
  Backend& device_;
  const std::shared_ptr<DeviceEntrySets> sets_;
  std::vector<Server> servers_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_DEVICE_VALUES_H_
