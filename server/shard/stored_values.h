// What is done to all values of a shard's store, row by row.
#ifndef TESSERA_SERVER_SHARD_STORED_VALUES_H_
#define TESSERA_SERVER_SHARD_STORED_VALUES_H_

#include <cstdint>

#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "server/shard/block_store.h"

namespace tessera {

// The initial values of `shape` that follow from `seed`.
void FillInitial(const ModelShape& shape, const ShardSlices& slices, uint64_t seed,
                 BlockStore* store);

// HashOf a store that FillInitial has filled, without one.
uint64_t InitialHash(const ModelShape& shape, const ShardSlices& slices, uint64_t seed);

// The sum over rows of a hash of (parameter, row, values): that of a model is the sum of its shards'.
uint64_t HashOf(const BlockStore& store, const ShardSlices& slices);

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_STORED_VALUES_H_
