// IPv6 for a library that listens on IPv4 alone, as civetweb does where Debian has built it.
#ifndef TESSERA_SERVER_MONITOR_V6_SOCKET_H_
#define TESSERA_SERVER_MONITOR_V6_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"

namespace tessera {

// Whether the host has IPv6 addresses and no other.
bool IsV6Alone(const std::string& host);

// A listening socket that blocks nobody, at the first IPv6 address of `host`; "::" is all addresses of the machine,
// also those of IPv4.
//   kNotFound            the host is not known
//   kAlreadyExists       the port is taken
//   kFailedPrecondition  anything else, in the system's words
absl::StatusOr<int> ListenV6(const std::string& host, int port);

// The port of a socket, of whichever kind.
int PortOfSocket(int fd);

// Puts `fd` in the place of the socket with which this process listens at 127.0.0.1:port: whoever waits for connections
// there has those to `fd` from now on, and owns it. False: there is no such socket, and `fd` is still the caller's.
bool ReplaceListener(int port, int fd);

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_V6_SOCKET_H_
