// A shard's events, as the log to its standby carries them (proto/replication.proto).
#ifndef TESSERA_SERVER_RPC_SHARD_LOG_MESSAGE_H_
#define TESSERA_SERVER_RPC_SHARD_LOG_MESSAGE_H_

#include "absl/status/statusor.h"
#include "common/codec/codec.h"
#include "common/codec/payload.h"
#include "proto/replication.pb.h"
#include "server/shard/shard_event.h"

namespace tessera {

// Position and version are left out. The event's values go to `payload`.
v1::LogEntry ToMessage(ShardEvent event, Payload* payload);

// `push` is the job's codec of pushes.  kInvalidArgument: no event
absl::StatusOr<ShardEvent> FromMessage(const v1::LogEntry& entry, Payload payload,
                                       const Codec& push);

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_SHARD_LOG_MESSAGE_H_
