// Which checkpoint, while it comes into being.
#ifndef TESSERA_SERVER_SHARD_CHECKPOINT_MARK_H_
#define TESSERA_SERVER_SHARD_CHECKPOINT_MARK_H_

#include <cstdint>

namespace tessera {

// As v1::CheckpointMark. Number 0: none.
struct CheckpointMark {
  uint64_t number = 0;
  uint64_t folder_step = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_CHECKPOINT_MARK_H_
