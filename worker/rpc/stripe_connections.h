// The further connections to one server, for calls whose messages go on several (common/rpc/striping/striping.h).
#ifndef TESSERA_WORKER_RPC_STRIPE_CONNECTIONS_H_
#define TESSERA_WORKER_RPC_STRIPE_CONNECTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tessera {

// One thread, the train loop's.
class StripeConnections {
 public:
  // `server` is for the log: which one, and where. Connects to `address` when first asked.
  StripeConnections(std::string server, std::string address);

  // The server takes calls on so many connections, as it has said. 1 until then.
  void Allow(int connections) { allowed_ = connections; }
  // The connections for a call of so many bytes, behind its own. One that does not stand yet is opened, and not waited
  // for.
  std::vector<grpc::GenericStub*> For(int64_t bytes, absl::Time now);
  // How a call on several connections has ended. After one that has failed calls go on one connection for a while, and
  // for twice as long where the next one fails, too: a network that does not allow more of them costs an attempt now
  // and then.
  void OnEnd(const absl::Status& status, absl::Time now);

 private:
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<grpc::GenericStub> stub;
  };

  const std::string server_;
  const std::string address_;
  int allowed_ = 1;
  bool is_told_ = false;
  absl::Duration rest_;
  absl::Time rests_until_ = absl::InfinitePast();
  std::vector<Connection> connections_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_STRIPE_CONNECTIONS_H_
