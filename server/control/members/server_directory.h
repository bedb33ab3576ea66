// Where workers reach the servers of a job in which servers change while it runs: replicas, and shards with standbys.
// A worker says with each renewal which version of the list it knows, and is sent another one.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_SERVER_DIRECTORY_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_SERVER_DIRECTORY_H_

#include <cstdint>

#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/members/server_table.h"

namespace tessera {

class ServerDirectory {
 public:
  // `servers` outlives it.
  explicit ServerDirectory(const ServerTable& servers) : servers_(servers) {}

  // A server has come, has gone, or is another process.
  void OnChanged() { ++generation_; }
  uint64_t generation() const { return generation_; }
  // The servers that take part: those to push to.
  v1::ServerList Text() const {
    v1::ServerList list;
    list.set_generation(generation_);
    for (int i = 0; i < servers_.count(); ++i) {
      if (!servers_.IsHere(ShardId(i))) continue;
      const ServerRecord& record = servers_.at(ShardId(i));
      v1::ServerEntry& entry = *list.add_servers();
      entry.set_rank(static_cast<uint32_t>(i));
      entry.set_address(record.address);
      entry.set_life(record.life);
    }
    return list;
  }

  void Save(v1::MembershipState* state) const { state->set_server_list_generation(generation_); }
  void Load(const v1::MembershipState& state) { generation_ = state.server_list_generation(); }

 private:
  const ServerTable& servers_;
  uint64_t generation_ = 1;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_SERVER_DIRECTORY_H_
