// The gate in front of a server's port: what gRPC reads and writes on the connections that the listener took is looked
// at as it goes by (frame_limits.h), and a connection that goes beyond the limits ends.
//
// The functions by which gRPC reads and writes are replaced within this process: recvmsg and sendmsg of sockets, and,
// where the frames are inside TLS, SSL_read and SSL_write; close tells when a connection's descriptor is free for
// another file. They do what the libraries' functions do and then look at the bytes where they lie: nothing is copied,
// no thread and no socket is between client and gRPC, and TLS is gRPC's own (docs/design/gate.md says what else could
// have been done). Sockets and TLS connections that are not the listener's pass through.
#ifndef TESSERA_COMMON_RPC_PORT_GATE_H_
#define TESSERA_COMMON_RPC_PORT_GATE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tessera {

// Looks at all that goes by on the connected socket `fd` from now on, until it is closed. `host` is named in the log.
// Any thread, before gRPC has the socket.
void WatchConnection(int fd, absl::string_view host, bool is_tls);

// Whether the process's libraries use the gate's functions. They do not where they were loaded in another way than by
// linking.
bool GateIsInForce();

// The connections that the gate has closed in this process.
uint64_t ConnectionsClosedByGate();

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_PORT_GATE_H_
