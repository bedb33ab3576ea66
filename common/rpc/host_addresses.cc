#include "common/rpc/host_addresses.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "absl/types/optional.h"
#include "common/base/host_port.h"

namespace tessera {

absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host) {
  addrinfo hints{};
  // One kind of socket, or each address would come once for each kind.
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (code != 0) return absl::UnavailableError(gai_strerror(code));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST] = "";
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  return addresses;
}

bool HasName(const std::string& address) {
  const absl::optional<HostPort> parsed = ParseHostPort(address);
  unsigned char bytes[sizeof(in6_addr)];
  return parsed.has_value() && parsed->host.find(':') == std::string::npos &&
         inet_pton(AF_INET, parsed->host.c_str(), bytes) != 1;
}

bool AreLoopback(const std::vector<std::string>& addresses) {
  return !addresses.empty() &&
         std::all_of(addresses.begin(), addresses.end(), [](const std::string& each) {
           return IsLoopback(HostPort{each, 1}.ToString());
         });
}

}  // namespace tessera
