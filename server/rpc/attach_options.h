// What a server says of itself when it attaches to the coordinator, and what is done where the coordinator tells it to.
#ifndef TESSERA_SERVER_RPC_ATTACH_OPTIONS_H_
#define TESSERA_SERVER_RPC_ATTACH_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "server/shard/shard_thread.h"

namespace tessera {

struct AttachOptions {
  // The coordinator's, host:port.
  std::string coordinator;
  // Where servers elect the coordinator: its address now, asked before every connection, or why that is
  // not known; empty: it stays at `coordinator`. Called on a thread of the link, may block for two seconds.
  std::function<absl::StatusOr<std::string>()> find_coordinator;
  // Opens a channel to the coordinator at an address, on a thread of the link; empty: OpenControlChannel.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& at)> open_channel;
  // The fields of ServerHello that the link does not know itself; layout_hash and parameter_bytes come from the shard.
  uint32_t rank = 0;
  // ServerHello.life; 0: it is drawn.
  uint64_t life = 0;
  // Where the job keeps standbys: ServerHello.lead_term.
  uint64_t lead_term = 0;
  std::string job_digest;
  // ServerHello.job_text and initial_sum.
  std::string job_text;
  uint64_t initial_sum = 0;
  std::string address;
  absl::Duration lease_timeout;
  // Outlives the link.
  ShardThread* shard = nullptr;
  // Adds what the shard does not know (payload bytes). May be empty; called on the shard's
  // thread.
  std::function<void(v1::ServerCounters*)> fill_counters;
  // The shard has been told the plan, or to go back to a checkpoint; may come again. May be empty.
  std::function<void()> on_begun;
  // Where servers are replicas: the address of the server to copy. Called on a thread of the link; may
  // come again, with another one.
  std::function<void(const std::string& donor)> copy_from;
  // Where the servers are (PlanMessage.servers), before an order is followed that came with it. Called on a thread of
  // the link. May be empty.
  std::function<void(std::vector<std::string> addresses)> on_servers;
  // Copies and writes what the shard has when the order is due; `done` is called with what became of
  // it, by any thread. Empty: checkpoints are not kept here.
  std::function<void(const v1::CheckpointOrder&, std::function<void(v1::CheckpointPart)> done)>
      save;
  // Goes back to a checkpoint. Returns at once, and what comes later is for the other shard, whose thread goes
  // on being asked for counters meanwhile; `done` is called by any thread, but not where another order comes
  // before that. Where it fails the server had better end.
  std::function<void(const v1::RestoreOrder&, std::function<void(absl::Status)> done)> restore;
  // The checkpoint that the job begins from here, where only `restore` could have it do so: a plan before any
  // restore order ends the link. Empty: none.
  std::string begins_from;
  // The number by which servers of the run know each other (CoordinatorWord.server_key) was heard. Called on a thread
  // of the link, before what came with it is done; may come again. May be empty.
  std::function<void(uint64_t key)> on_server_key;
  // The coordinator is away for longer than a lease, or it is back. Called on a thread of the link, one call at
  // a time: the last one tells what is true.
  std::function<void(bool is_away)> on_away;
  // What the coordinator says of Leave, on a thread of the link; on_end follows where the server may end. May be
  // empty.
  std::function<void(const v1::LeaveAnswer&)> on_leave;
  // Called once, on a thread of the link, when the link has ended by itself:
  //   OK                   the job has ended, all is reported; or the server may leave
  //   kUnavailable         the coordinator was lost
  //   any other            the coordinator refused this server
  std::function<void(absl::Status)> on_end;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_ATTACH_OPTIONS_H_
