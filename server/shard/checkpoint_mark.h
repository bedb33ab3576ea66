// Which checkpoint, while it comes into being.
#ifndef TESSERA_SERVER_SHARD_CHECKPOINT_MARK_H_
#define TESSERA_SERVER_SHARD_CHECKPOINT_MARK_H_

#include <cstdint>

#include "common/base/ids.h"

namespace tessera {

// Names one checkpoint, as v1::CheckpointMark does. Number 0: none.
struct CheckpointMark {
  uint64_t number = 0;
  uint64_t folder_step = 0;
};

// CopyOrder.after: at once, with what is committed. What is half collected is lost.
constexpr Exchange kCopyAtOnce{~uint64_t{0}};

// When a checkpoint's copy is to be made.
struct CopyOrder {
  CheckpointMark mark;
  // The copy is made once this exchange is committed and nothing of the next one is folded, which all servers have
  // agreed on. 0: as soon as no update is half collected.
  Exchange after;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_CHECKPOINT_MARK_H_
