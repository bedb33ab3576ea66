// A replica's table, as messages have it.
#ifndef TESSERA_SERVER_RPC_REPLICA_TABLE_MESSAGE_H_
#define TESSERA_SERVER_RPC_REPLICA_TABLE_MESSAGE_H_

#include "proto/parameter_server.pb.h"
#include "server/shard/replica_table.h"

namespace tessera {

// Returns the table as a message, without version and examples, which every answer to a pull has.
inline v1::ReplicaTable ToMessage(const ReplicaTable& table) {
  v1::ReplicaTable message;
  message.set_plan_generation(table.plan.value());
  for (const auto& [member, exchange] : table.folded) {
    v1::ReplicaTable::Folded& entry = *message.add_folded();
    entry.set_member(member.value());
    entry.set_exchange(exchange.value());
  }
  return message;
}

inline ReplicaTable TableOf(const v1::ChunkHeader& header) {
  ReplicaTable table;
  table.version = Version(header.version());
  table.examples = header.examples();
  table.plan = Generation(header.replica().plan_generation());
  for (const v1::ReplicaTable::Folded& entry : header.replica().folded()) {
    table.folded[MemberId(entry.member())] = Exchange(entry.exchange());
  }
  return table;
}

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_REPLICA_TABLE_MESSAGE_H_
