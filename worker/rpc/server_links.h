// The servers of a job as one worker knows them: where each one is, and the connections to it.
//
// Without standbys and replicas this stays what it was at the beginning. With standbys another server may lead a shard
// from some moment on. Where placement is replicated servers come and go.
#ifndef TESSERA_WORKER_RPC_SERVER_LINKS_H_
#define TESSERA_WORKER_RPC_SERVER_LINKS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/layout/shard_map.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_server.pb.h"
#include "worker/rpc/linked_server.h"
#include "worker/rpc/stripe_connections.h"

namespace tessera {

// One thread, the train loop's, but for Set.
class ServerLinks {
 public:
  struct Options {
    // host:port by shard. Replicated: none, the servers are those of Set.
    std::vector<std::string> addresses;
    Placement placement = Placement::kSharded;
    // Replicated: the server beside this worker.
    size_t home = 0;
    bool has_standbys = false;
    // 1, or 2: then pulls have a connection of their own.
    int channels_per_server = 1;
    // Who asks servers of this machine to share memory; nullopt: nobody does.
    std::optional<v1::Caller> shares_memory = std::nullopt;
  };
  // Connects when first used.
  explicit ServerLinks(Options options);

  size_t size() const { return servers_.size(); }
  bool is_replicated() const { return options_.placement == Placement::kReplicated; }
  // A push goes to it so that it does not fall behind the server beside this worker.
  bool is_peer(size_t server) const { return is_replicated() && server != options_.home; }
  // False: no server has this rank at present.
  bool is_there(size_t server) const {
    return server < servers_.size() && (!is_replicated() || servers_[server].life != 0);
  }
  // Whether values are asked of it in an exchange, or were if it were there.
  bool is_pulled_from(size_t server) const { return is_there(server) && !is_peer(server); }
  // Which part of a key set it holds: all of them the first one where placement is replicated.
  size_t part_of(size_t server) const { return is_replicated() ? 0 : server; }
  const std::string& address(size_t server) const { return servers_[server].address; }
  grpc::GenericStub* pushes(size_t server) { return servers_[server].stubs.front().get(); }
  grpc::GenericStub* pulls(size_t server) { return servers_[server].stubs.back().get(); }
  // The link by which the next call or its payload may go; nullptr: none, or not yet.
  std::shared_ptr<LocalCaller> memory(size_t server);
  // A call that had the server's link did not end well: what was lent for it may never have been seen. The next calls
  // get another link.
  void LeaveMemory(size_t server);
  // The further connections to a server.
  StripeConnections& stripes(size_t server) { return *servers_[server].stripes; }
  // Opens new connections in place of the present ones. Calls under way keep theirs.
  void Reconnect(size_t server);
  // Says which shard, or which of several servers of one rank, a request is for.
  void Name(size_t server, v1::Caller* caller) const;

  // Replicated: the servers to push to. With standbys: who leads which shard. An older list than the last one changes
  // nothing, and the result is false. Any thread.
  bool Set(const v1::ServerList& list);
  // Between exchanges, where placement is replicated: takes up the list of Set.
  void TakeUp();
  // In mid-exchange, where placement is replicated: the servers that have gone according to the list of Set, which is
  // not taken up.
  std::vector<size_t> Gone();
  // With standbys: goes where shards are led now, and returns the shards that have moved.
  std::vector<size_t> Move();

 private:
  struct Server {
    std::string address;
    // Pushes go to the first one, pulls to the last.
    std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
    uint64_t life = 0;                     // replicated; 0: none has this rank
    std::shared_ptr<LinkedServer> memory;  // nullptr: it is not asked
    std::unique_ptr<StripeConnections> stripes;
  };

  v1::ServerList wanted() const;

  const Options options_;
  std::vector<Server> servers_;
  std::atomic<bool> changed_{false};
  mutable absl::Mutex mutex_;
  v1::ServerList wanted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_SERVER_LINKS_H_
