// What coding on a device takes of its memory.
#ifndef TESSERA_WORKER_RPC_DEVICE_MEMORY_H_
#define TESSERA_WORKER_RPC_DEVICE_MEMORY_H_

#include <cstdint>
#include <optional>

#include "common/codec/codec.h"
#include "common/keyset/core_share.h"
#include "common/layout/parameters.h"
#include "worker/exchange/device_sides.h"

namespace tessera {

// Bytes of DeviceUpdateCoder and DeviceValues together, where `shape` is exchanged. With a threshold that
// is led, as long as at most four times the wanted share is sent.
int64_t DeviceCodingBytes(const CodecChoice& codecs, const DeviceSides& sides,
                          const ModelShape& shape, const std::optional<CoreShare>& core);

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_DEVICE_MEMORY_H_
