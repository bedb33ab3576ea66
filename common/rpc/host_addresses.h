// What a host's name stands for, as this machine sees it.
#ifndef TESSERA_COMMON_RPC_HOST_ADDRESSES_H_
#define TESSERA_COMMON_RPC_HOST_ADDRESSES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

// A host's IP addresses in digits, IPv6 ones without brackets.
//   kUnavailable  it has none now, with the system's reason: a name may be known later
using Resolve = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& host)>;

// Asks the system: /etc/hosts, then DNS. May take as long as DNS does, some seconds.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host);

// Whether the host of `address` (host:port) is a name, not an IP address.
bool HasName(const std::string& address);

// Whether there are addresses, and only this machine can connect to any of them.
bool AreLoopback(const std::vector<std::string>& addresses);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_HOST_ADDRESSES_H_
