// Payloads of a selective codec, of updates that lie in a device's memory. Entries that reach a limit are found there,
// and only their marks cross to the host, where they are written; the largest of chunks are written there, too.
#ifndef TESSERA_WORKER_RPC_DEVICE_SELECTION_H_
#define TESSERA_WORKER_RPC_DEVICE_SELECTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/codec/selective_codec.h"
#include "common/keyset/key_set.h"
#include "common/layout/parameters.h"
#include "kernels/backend.h"
#include "kernels/exchange.h"
#include "kernels/memory.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

// What is held back, in device memory: of each parameter from values[offsets[parameter]] on.
struct HeldOnDevice {
  float* values = nullptr;
  const std::vector<int64_t>& offsets;
};

// One thread. Memory grows to what pushes need, and stays.
class DeviceSelection {
 public:
  using Bytes = std::shared_ptr<const std::vector<char>>;

  // All must outlive it.
  DeviceSelection(const SelectiveCodec& codec, const ModelShape& shape, Backend* device);

  // The payload of each of keys.slices. Waits for the device once, or where there is a limit up to three times: for
  // samples, for counts of marks, and for marks. An error is the device's.
  absl::StatusOr<std::vector<Bytes>> Code(const KeySet& keys, const ConstParameterArrays& update,
                                          const HeldOnDevice& held);

  EntrySelector& selector() { return *selector_; }
  // Bytes of device memory, where pushes send no more than a few times what is meant.
  static int64_t BytesNeeded(const SelectiveCodec& codec, const ModelShape& shape);

 private:
  absl::Status Learn(const ConstParameterArrays& update, const HeldOnDevice& held);
  absl::StatusOr<std::vector<Bytes>> CodeMarked(const KeySet& keys,
                                                const ConstParameterArrays& update,
                                                const HeldOnDevice& held);
  absl::StatusOr<std::vector<Bytes>> CodeLargest(const KeySet& keys,
                                                 const ConstParameterArrays& update,
                                                 const HeldOnDevice& held);

  const SelectiveCodec& codec_;
  const ModelShape& shape_;
  Backend& device_;
  const std::unique_ptr<EntrySelector> selector_;
  Buffer<float> samples_;
  Buffer<float> host_samples_;
  Buffer<ThresholdTile> tiles_;
  Buffer<ThresholdTile> host_tiles_;
  Buffer<uint32_t> bits_;
  Buffer<int64_t> begins_;
  Buffer<uint32_t> marks_;
  Buffer<uint32_t> host_marks_;
  Buffer<float> sums_;  // of one server's entries
  Buffer<char> bytes_;
  Buffer<char> host_bytes_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_DEVICE_SELECTION_H_
