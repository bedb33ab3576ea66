// What a shard counts.
#ifndef TESSERA_SERVER_SHARD_SHARD_COUNTERS_H_
#define TESSERA_SERVER_SHARD_SHARD_COUNTERS_H_

#include <array>
#include <cstdint>

#include "common/base/ids.h"

namespace tessera {

struct ShardCounters {
  Version version;
  Exchange collecting;
  uint64_t pushes = 0;
  uint64_t duplicates = 0;
  uint64_t refused = 0;
  uint64_t refused_non_finite = 0;
  int64_t staged_bytes = 0;
  int64_t copied_bytes_peak = 0;
  int64_t blocks_allocated = 0;
  // Entry i counts pushes applied i versions late; the last one also all above.
  std::array<uint64_t, 65> staleness{};
  uint64_t staleness_sum = 0;
  uint64_t staleness_max = 0;
  // Rows that the committed updates were computed from.
  uint64_t examples = 0;
  // Members that rest: nobody waits for them.
  uint64_t resting = 0;
  // The hash of the parameters before the first update (ParametersHash).
  uint64_t initial_hash = 0;
  // The replica was copied from another one.
  bool copied = false;

  // What one that this process had before has seen happen, whatever becomes of the parameters.
  void CountOn(const ShardCounters& before) {
    duplicates += before.duplicates;
    refused += before.refused;
    refused_non_finite += before.refused_non_finite;
  }
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_COUNTERS_H_
