// Which pushes the values of a replica contain.
#ifndef TESSERA_SERVER_SHARD_REPLICA_TABLE_H_
#define TESSERA_SERVER_SHARD_REPLICA_TABLE_H_

#include <cstdint>
#include <map>

#include "common/base/ids.h"

namespace tessera {

struct ReplicaTable {
  Version version;
  uint64_t examples = 0;
  // The plan that had been applied: of members that were removed by then no more can come.
  Generation plan;
  // The last exchange of each member that is in the values, those of removed members included.
  std::map<MemberId, Exchange> folded;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_REPLICA_TABLE_H_
