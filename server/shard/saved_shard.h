// What a shard begins with that goes on from a checkpoint.
#ifndef TESSERA_SERVER_SHARD_SAVED_SHARD_H_
#define TESSERA_SERVER_SHARD_SAVED_SHARD_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "server/shard/shard_counters.h"

namespace tessera {

// What a shard begins with instead of initial values.
struct SavedShard {
  // Rows [row_begin, row_end) of a parameter; of its state where that is not -1.
  std::function<absl::Status(int parameter, int state, int64_t row_begin, int64_t row_end,
                             float* out)>
      read_rows;
  // version, pushes, staleness, examples.
  ShardCounters counters;
  // The last exchange in the values; 0 where members advance on their own.
  Exchange exchange;
  bool whole_next = false;
  // CoreShare::every of the job that saved it; 0: as this one's.
  uint64_t core_every = 0;
  // UpdateRule::divisor of each state in the job that saved it; empty: as this one's.
  std::vector<float> divisors;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SAVED_SHARD_H_
