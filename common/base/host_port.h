// Addresses as people write them: "server-0.example:7000", "10.0.0.1:7000", "[fe80::1]:7000".
#ifndef TESSERA_COMMON_BASE_HOST_PORT_H_
#define TESSERA_COMMON_BASE_HOST_PORT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace tessera {

struct HostPort {
  std::string host;  // A name, or an IP address without brackets.
  int port = 0;      // 0: one to listen at, which the system chooses.

  // The address as it was written.
  std::string ToString() const;
};

// Parses host:port with a port up to 65535 in digits; nothing where `address` is none. A host is a name of
// letters, digits, '.', '-' and '_', or an IPv6 address in brackets, with a zone or none; whether it exists nobody
// asks.
absl::optional<HostPort> ParseHostPort(absl::string_view address);

// Whether `address` can be called: it has a host, and a port from 1.
bool IsHostPort(absl::string_view address);

// Whether only this machine can connect to `address` (host:port): 127.0.0.0/8, [::1], "localhost". A name that
// only begins as one of them is another's.
bool IsLoopback(absl::string_view address);

// Whether `address` is a place to listen at and not to call, as "0.0.0.0:7000" and "[::]:7000" are.
bool IsAnyAddress(absl::string_view address);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_HOST_PORT_H_
