// The name that a process is to listen at: it may not be known yet, and it may be a loopback address.
#ifndef TESSERA_COMMON_RPC_OWN_NAME_H_
#define TESSERA_COMMON_RPC_OWN_NAME_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/host_addresses.h"

namespace tessera {

// How long a name is waited for. Names come with a delay where machines and pods have just been started; one that
// is misspelt never comes.
constexpr absl::Duration kNameWait = absl::Minutes(1);

struct OwnName {
  // The process in the log: "server".
  std::string who;
  // host:port.
  std::string address;
  // What to do where the host is not known here, or others cannot reach it: "start it with --listen 0.0.0.0:7000".
  std::string advice;
  absl::Duration patience = kNameWait;
  Resolve resolve = ResolveHost;
};

// Waits until the name's host is known, and says in the log that it does. Says there, too, that nobody else reaches it
// where all its addresses are loopback on this machine.
//   kInvalidArgument  it was not known within the patience
absl::Status AwaitOwnName(const OwnName& name);

// The advice for a server, which others call by the address in the job, wherever it listens.
std::string ListenEverywhere(const std::string& address);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_OWN_NAME_H_
