// What a host of shards does when the coordinator tells it its roles (proto/replication.proto). ShardHost does it to
// threads and connections, tests/sim to simulated ones.
#ifndef TESSERA_SERVER_RPC_HOST_ROLES_H_
#define TESSERA_SERVER_RPC_HOST_ROLES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "proto/replication.pb.h"

namespace tessera {

// What is to be done, in the order of the fields.
struct RoleChanges {
  // Nothing has changed, and there is nothing to say.
  bool is_same = false;
  // Take the logs of these terms, and none of earlier ones.
  std::map<ShardId, uint64_t> follow;
  // Begin to lead, with what was followed where that is of use: the term in which this host leads, by shard.
  std::map<ShardId, uint64_t> lead;
  // What is followed, all in all: drop the rest.
  std::set<ShardId> followed;
  // The log of a shard that is led goes there under this term from now on, and nowhere else; no address:
  // nowhere, and the shard waits for no standby.
  struct Feed {
    ShardId shard;
    uint64_t term = 0;
    std::string standby;
  };
  std::vector<Feed> feed;
};

// Pure. One thread at a time.
class HostRoles {
 public:
  // `shard_count`: the shards of the job.
  explicit HostRoles(uint32_t shard_count) : shard_count_(shard_count) {}

  // `order` is neither a refusal nor the end.
  //   kInvalidArgument     a shard or a role that there is not, or two roles of a shard; nothing has changed
  //   kFailedPrecondition  another host has led what this one leads: this process has nothing that anybody
  //                        wants, and must end
  absl::StatusOr<RoleChanges> Take(const v1::HostOrder& order);

 private:
  struct Led {
    uint64_t lead_term = 0;
    uint64_t term = 0;    // of the last order
    std::string standby;  // so
  };

  const uint32_t shard_count_;
  std::string last_order_;
  std::map<ShardId, Led> led_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_HOST_ROLES_H_
