// What the keys of `checkpoint` come to.
#ifndef TESSERA_COMMON_CONFIG_CHECKPOINT_KEYS_H_
#define TESSERA_COMMON_CONFIG_CHECKPOINT_KEYS_H_

#include <cstddef>
#include <cstdint>

#include "proto/job.pb.h"

namespace tessera {

constexpr char kOwnDisks[] = "own_disks";
// The most calls of others that wait for a server's own disk, and the bytes of their pieces.
constexpr size_t kStoreCallsMax = 32;
constexpr int64_t kStorePieceBytesMax = int64_t{1} << 20;
constexpr int64_t kStoreBytesMax = static_cast<int64_t>(kStoreCallsMax) * kStorePieceBytesMax;

// Checkpoints are on servers' own disks, rather than in a folder that all processes see.
inline bool HasOwnDisks(const v1::Job& job) { return job.checkpoint().store() == kOwnDisks; }

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_CHECKPOINT_KEYS_H_
