// The coordinator's messages to the servers of a job, in the order in which they are to be delivered.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_SERVER_OUTBOX_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_SERVER_OUTBOX_H_

#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "server/control/members/server_table.h"

namespace tessera {

// A message for one server. Messages to the same server are delivered in this order, or lost with its connection; a
// server that comes back is sent all it needs.
struct Outgoing {
  ShardId server;
  v1::PlanMessage message;
};

class ServerOutbox {
 public:
  // `servers` outlives the outbox.
  explicit ServerOutbox(const ServerTable& servers) : servers_(servers) {}

  void Tell(ShardId server, v1::PlanMessage message) {
    messages_.push_back({server, std::move(message)});
  }
  // Tells every server that takes part in the job.
  void TellAll(const v1::PlanMessage& message) {
    for (int i = 0; i < servers_.count(); ++i) {
      if (servers_.IsHere(ShardId(i))) Tell(ShardId(i), message);
    }
  }

  std::vector<Outgoing> Take() { return std::exchange(messages_, {}); }
  // Drops what has not been taken: another process's outbox had it.
  void Clear() { messages_.clear(); }

 private:
  const ServerTable& servers_;
  std::vector<Outgoing> messages_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_SERVER_OUTBOX_H_
