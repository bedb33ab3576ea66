#include "deploy/doctor/own_name_check.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/host_port.h"
#include "common/rpc/own_name.h"
#include "deploy/doctor/reachability.h"

namespace tessera {

bool ListensOutside(int port, absl::Duration patience) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(found, freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    // A server that listens on loopback alone is found at none of the other addresses.
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST] = "";
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(each->ifa_addr, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    if (TryConnect(HostPort{host, port}.ToString(), patience) == Reach::kOpen) return true;
  }
  return false;
}

Findings CheckOwnName(int rank, const std::string& address, const Resolve& resolve,
                      const std::function<bool(int port)>& listens_outside) {
  // An address in digits says where it is, and localhost is meant.
  if (!HasName(address) || IsLoopback(address)) return {};
  const HostPort where = *ParseHostPort(address);
  const absl::StatusOr<std::vector<std::string>> found = resolve(where.host);
  // A server that listens on all interfaces is reached in any case.
  if (!found.ok() || !AreLoopback(*found) || listens_outside(where.port)) return {};
  return {{Finding::Kind::kProblem,
           absl::StrCat("server ", rank, " at ", address, ": \"", where.host, "\" is ",
                        absl::StrJoin(*found, " and "),
                        " on this machine, so that a server which listens there is reached from "
                        "this machine alone"),
           absl::StrCat(ListenEverywhere(address),
                        ", or have the name stand for an address that others reach (/etc/hosts)")}};
}

}  // namespace tessera
