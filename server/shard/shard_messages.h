// What the control plane says to a shard, and hears from it.
#ifndef TESSERA_SERVER_SHARD_SHARD_MESSAGES_H_
#define TESSERA_SERVER_SHARD_SHARD_MESSAGES_H_

#include "common/consistency/plan.h"
#include "proto/coordinator.pb.h"
#include "server/shard/shard.h"

namespace tessera {

Plan ToPlan(const v1::Plan& message);

// What a checkpoint's manifest has of a shard. `file` and what else the writer knows is missing.
v1::CheckpointPart ToPart(const ShardCopy& copy);

// Returns the counters as a message, without what the shard does not know itself: rank, waiting pulls, whom it waits
// for, memory.
v1::ServerCounters ToMessage(const ShardCounters& in);

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_MESSAGES_H_
