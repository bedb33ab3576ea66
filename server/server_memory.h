// What a server needs of its machine's memory.
#ifndef TESSERA_SERVER_SERVER_MEMORY_H_
#define TESSERA_SERVER_SERVER_MEMORY_H_

#include <cstdint>
#include <limits>
#include <string>

#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "common/rpc/windows.h"
#include "proto/job.pb.h"
#include "server/shard/shard_memory.h"

namespace tessera {

struct ServerMemory {
  ShardMemory shard;
  // Bytes that a checkpoint holds while it is written.
  int64_t checkpoint = 0;
  // Bytes of the process itself, its connections, and what it may hold of other shards.
  int64_t program = 0;
  // Windows as wide as the limit leaves room for; narrow ones where there is no limit, which nobody asks for then.
  WindowPlan windows;

  int64_t total() const { return shard.total() + checkpoint + program + windows.bytes(); }
  // "slice 1 + ... + checkpoints 0 + program and connections 2", and " + windows 3" where they are wide.
  std::string Describe() const;
};

// The memory of server `rank` of a resolved job with this recipe and what it exchanges: as much as is of use, if
// that fits `bytes_max`, otherwise what a shard can do with (shard_memory.h), whose total() may be larger.
ServerMemory PlanServerMemory(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                              int rank, int64_t bytes_max = std::numeric_limits<int64_t>::max());

}  // namespace tessera

#endif  // TESSERA_SERVER_SERVER_MEMORY_H_
