// What a worker says of shards that standbys have taken over.
#ifndef TESSERA_WORKER_MOVED_SHARDS_H_
#define TESSERA_WORKER_MOVED_SHARDS_H_

#include "proto/coordinator.pb.h"

namespace tessera {

// A log line for each shard that has another address than before.
void LogMovedShards(const v1::ServerList& before, const v1::ServerList& now);

}  // namespace tessera

#endif  // TESSERA_WORKER_MOVED_SHARDS_H_
