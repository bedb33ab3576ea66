// Whether the name of a peer stands for another machine by now.
//
// gRPC asks for a name's addresses anew when a connection has ended. One to a machine that is gone without a word
// stands until a ping has not been answered, 20 s (control_channel.h), which is longer than most leases.
#ifndef TESSERA_COMMON_RPC_NAME_WATCH_H_
#define TESSERA_COMMON_RPC_NAME_WATCH_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/rpc/host_addresses.h"

namespace tessera {

// The time between two questions to the resolver.
constexpr absl::Duration kNameAskInterval = absl::Milliseconds(500);

// One thread's. Asks on a thread of its own, which it does not wait for, as DNS may take its time.
class NameWatch {
 public:
  // Watches `address`, host:port. Where the host is an IP address it never moves.
  explicit NameWatch(const std::string& address, Resolve resolve = ResolveHost);
  ~NameWatch();

  // Whether the name was heard to stand for other addresses than the one that `peer`, gRPC's word for a connection's
  // other end ("ipv4:10.0.0.1:7000"), is at: by the last answer, and for the next one it asks. False where there is no
  // connection, "", or no answer. Never blocks.
  bool HasLeft(const std::string& peer, absl::Time now);

 private:
  struct Answer;

  std::string host_;  // empty: an IP address
  const Resolve resolve_;
  absl::Time next_;
  std::shared_ptr<Answer> answer_;
};

// "10.0.0.1" of "ipv4:10.0.0.1:7000", "::1" of "ipv6:%5B::1%5D:7000"; "" where it is neither.
std::string HostOfPeer(const std::string& peer);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_NAME_WATCH_H_
