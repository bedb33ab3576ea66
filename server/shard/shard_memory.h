// What a shard may hold beside its parameters: pushes on their way, and copies for readers. What a checkpoint holds
// comes on top.
#ifndef TESSERA_SERVER_SHARD_SHARD_MEMORY_H_
#define TESSERA_SERVER_SHARD_SHARD_MEMORY_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "common/keyset/subnet.h"
#include "common/layout/shard_map.h"

namespace tessera {

// Bounds on what the shard's state is not.
struct ShardLimits {
  // Pushes that wait here, beside the one whose turn is next: that one has a place always.
  int64_t staging_bytes = 0;
  // Blocks that only readers still hold.
  int64_t copy_bytes = 0;
  // Where subnets are trained: nothing is folded while somebody reads, so that no block is copied but for a
  // checkpoint.
  bool folds_wait_for_readers = false;
};

// A server's need, by parts.
struct ShardMemory {
  int64_t slice = 0;
  int64_t pending = 0;    // of subnets, sums of what all sites have
  int64_t states = 0;     // the rule's
  int64_t next_push = 0;  // the largest one, as it is received
  ShardLimits limits;

  // Bytes of memory for those that limits.staging_bytes lets wait.
  int64_t other_pushes() const;
  int64_t total() const {
    return slice + pending + states + next_push + other_pushes() + limits.copy_bytes;
  }
  // "slice 1 + pending 1 + optimizer state 0 + next push 1 + other pushes 1 + copies for readers 1"
  std::string Describe() const;
};

struct ShardNeeds {
  const ModelShape* shape = nullptr;
  ShardSlices slices;
  int state_count = 0;
  int64_t workers = 1;
  // Set: subnets are trained, and nothing else.
  const NeuronGroups* groups = nullptr;
  // The size of the largest part, as a multiple of the mean.
  double part = 1;
};

// As much as is of use, if that fits `bytes_max`. Otherwise staging and copies share what the rest
// leaves; where that is not enough for one push, the least, whose total() is larger.
ShardMemory PlanShardMemory(const ShardNeeds& needs,
                            int64_t bytes_max = std::numeric_limits<int64_t>::max());

// The bytes of a push of a subnet to the owner of `slices`, of a part that is so many times the mean of
// so many sites, but for one round in millions: which of a server's rows are a site's is a matter of
// chance.
int64_t LargestPush(const ModelShape& shape, const NeuronGroups& groups, const ShardSlices& slices,
                    int64_t sites, double part = 1);

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_MEMORY_H_
