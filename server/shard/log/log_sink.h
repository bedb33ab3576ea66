// Where a leading shard's events go.
#ifndef TESSERA_SERVER_SHARD_LOG_LOG_SINK_H_
#define TESSERA_SERVER_SHARD_LOG_LOG_SINK_H_

#include <cstdint>
#include <string>

#include "server/shard/shard_event.h"

namespace tessera {

// All calls come from the shard's thread and must not block.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // Called before the first Add. `copies`: the first event is an image; otherwise the standby begins with the initial
  // values, as the shard does.
  virtual void Begin(bool copies) = 0;
  // Positions count from 1. `version` is the shard's after the event.
  virtual void Add(uint64_t position, Version version, ShardEvent event) = 0;
  // The standby has all that was ever acknowledged; from now on nothing is that it has not.
  virtual void OnInSync() = 0;
  // No more comes, as what comes next has nothing to do with it.
  virtual void Break(const std::string& why) = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_LOG_LOG_SINK_H_
