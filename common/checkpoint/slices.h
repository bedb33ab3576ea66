// Where the rows of a parameter lie in a checkpoint of so many servers.
#ifndef TESSERA_COMMON_CHECKPOINT_SLICES_H_
#define TESSERA_COMMON_CHECKPOINT_SLICES_H_

#include <cstdint>
#include <vector>

#include "common/checkpoint/manifest.h"

namespace tessera {

// Rows that lie in one shard's file, one after the other.
struct SavedRows {
  int64_t shard = 0;
  // The slice's first row in the shard's tensor.
  int64_t row_begin = 0;
  int64_t row_count = 0;
};

// Rows [row_begin, row_end) of a parameter of `rows` rows that was saved by these servers, in order.
// Servers own rows as common/layout/shard_map.h says, so that any number of servers can be served
// from any other's files.
std::vector<SavedRows> SavedRowsOf(int64_t rows, const Owners& owners, int64_t row_begin,
                                   int64_t row_end);

// What server `shard` of `shard_count` takes over of the saved servers' counters. Where these were as many, all of its
// own: its rule's state fits that version alone. Elsewhere the sums of its share of them, the furthest version, and the
// examples that all have.
CheckpointShard CountersFor(const std::vector<CheckpointShard>& saved, int64_t shard,
                            int64_t shard_count);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_SLICES_H_
