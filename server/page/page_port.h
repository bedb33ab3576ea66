// The sockets at which a page is served, and the TLS that is spoken there.
#ifndef TESSERA_SERVER_PAGE_PAGE_PORT_H_
#define TESSERA_SERVER_PAGE_PAGE_PORT_H_

#include <memory>
#include <string>
#include <vector>

#include <openssl/types.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/security.h"

namespace tessera {

// Owns its sockets, which wait for nobody.
class PagePort {
 public:
  // Listens at HOST:PORT, at all addresses of HOST; port 0 takes a free one. Messages name --page, the flag that the
  // address is from.
  //   kInvalidArgument     the address is none, or its host is not known
  //   kFailedPrecondition  the port is taken, or the address is not this machine's
  static absl::StatusOr<std::unique_ptr<PagePort>> Listen(const std::string& address);
  ~PagePort();

  const std::vector<int>& sockets() const { return sockets_; }
  // HOST:PORT with the port that was taken, and HOST alone.
  const std::string& address() const { return address_; }
  const std::string& host() const { return host_; }

 private:
  PagePort() = default;

  std::vector<int> sockets_;
  std::string address_;
  std::string host_;
};

struct FreeTls {
  void operator()(SSL_CTX* context) const;
};
using PageTls = std::unique_ptr<SSL_CTX, FreeTls>;

// TLS with the job's certificate, as its RPCs have it: with an authority every client shows a certificate. nullptr: the
// job has none.
//   kInvalidArgument  OpenSSL does not take them
absl::StatusOr<PageTls> OpenPageTls(const Security& security);

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_PAGE_PORT_H_
