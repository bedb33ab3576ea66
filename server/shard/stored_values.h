// What is done to all values of a shard's store, row by row.
#ifndef TESSERA_SERVER_SHARD_STORED_VALUES_H_
#define TESSERA_SERVER_SHARD_STORED_VALUES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/initial_file.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "server/shard/block_store.h"

namespace tessera {

// The initial values of a job.
struct InitialValues {
  const ModelShape& shape;
  // They follow from the seed, unless the file has the parameter.
  uint64_t seed = 0;
  const InitialFile* file = nullptr;

  // Writes rows [row_begin, row_end) of a parameter. The codes are InitialFile's.
  absl::Status FillRows(int parameter, int64_t row_begin, int64_t row_end, float* out) const;
};

// Fills a store with them. The codes are InitialFile's, and the store's values are any then.
absl::Status FillInitial(const InitialValues& values, const ShardSlices& slices, BlockStore* store);

// HashOf a store that FillInitial has filled, without one.
absl::StatusOr<uint64_t> InitialHash(const InitialValues& values, const ShardSlices& slices);

// The sum over rows of a hash of (parameter, row, values): that of a model is the sum of its shards'.
uint64_t HashOf(const BlockStore& store, const ShardSlices& slices);

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_STORED_VALUES_H_
