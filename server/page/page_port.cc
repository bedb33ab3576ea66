#include "server/page/page_port.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/host_port.h"

namespace tessera {
namespace {

constexpr int kBacklog = 128;

int PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// A listening socket, or -1 with errno.
int ListenOn(const addrinfo& at, int port) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_storage address{};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  const auto network_port = htons(static_cast<uint16_t>(port));
  const int on = 1;
  bool is_set = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0;
  if (at.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = network_port;
    // "::" is all addresses of the machine, those of IPv4 included.
    const int v6_only =
        IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(at.ai_addr)->sin6_addr) ? 0
                                                                                               : 1;
    is_set = is_set && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only)) == 0;
  } else {
    reinterpret_cast<sockaddr_in*>(&address)->sin_port = network_port;
  }
  if (is_set && bind(fd, reinterpret_cast<sockaddr*>(&address), at.ai_addrlen) == 0 &&
      listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

absl::Status TlsError(absl::string_view what) {
  char reason[256] = "";
  ERR_error_string_n(ERR_get_error(), reason, sizeof(reason));
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat("--page: OpenSSL does not take the ", what, " of the job's security: ", reason));
}

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;
using Certificate = std::unique_ptr<X509, FreeCertificate>;

std::vector<Certificate> ReadCertificates(const std::string& pem) {
  std::vector<Certificate> read;
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    read.emplace_back(next);
  }
  // The end of the text is no error.
  ERR_clear_error();
  return read;
}

bool SetCertificate(const std::string& pem, SSL_CTX* context) {
  const std::vector<Certificate> chain = ReadCertificates(pem);
  if (chain.empty() || SSL_CTX_use_certificate(context, chain.front().get()) != 1) return false;
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) return false;
  }
  return true;
}

bool SetKey(const std::string& pem, SSL_CTX* context) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const std::unique_ptr<EVP_PKEY, FreeKey> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1 &&
         SSL_CTX_check_private_key(context) == 1;
}

bool SetAuthority(const std::string& pem, SSL_CTX* context) {
  const std::vector<Certificate> authorities = ReadCertificates(pem);
  for (const Certificate& authority : authorities) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1) return false;
    // Browsers offer their user the certificates that one of these has signed.
    if (SSL_CTX_add_client_CA(context, authority.get()) != 1) return false;
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return !authorities.empty();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PagePort>> PagePort::Listen(const std::string& address) {
  const absl::optional<HostPort> where = ParseHostPort(address);
  if (!where.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--page: got \"", address,
                     "\", want HOST:PORT, a name, an IPv4 address or an IPv6 address in brackets, "
                     "and a port from 0 to 65535; 0 takes a free one"));
  }
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (getaddrinfo(where->host.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--page: host of \"", address, "\" is not known, want a name or an IP address"));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::unique_ptr<PagePort> port(new PagePort);
  int number = where->port, error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = ListenOn(*at, number);
    if (fd < 0) {
      // A name may stand for an address that the machine does not have, beside one that it has.
      if (error == 0 || errno == EADDRINUSE) error = errno;
      continue;
    }
    port->sockets_.push_back(fd);
    number = PortOf(fd);
  }
  if (port->sockets_.empty() || error == EADDRINUSE) {
    return absl::FailedPreconditionError(
        error == EADDRINUSE
            ? absl::StrCat("--page: port ", number, " of \"", address,
                           "\" is taken, want a free one; stop its owner or take another")
            : absl::StrCat("--page: \"", address,
                           "\" cannot be listened on: ", std::strerror(error)));
  }
  port->host_ = where->host;
  port->address_ = HostPort{where->host, number}.ToString();
  return port;
}

PagePort::~PagePort() {
  for (const int fd : sockets_) close(fd);
}

void FreeTls::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

absl::StatusOr<PageTls> OpenPageTls(const Security& security) {
  if (!security.serves_tls()) return nullptr;
  PageTls tls(SSL_CTX_new(TLS_server_method()));
  TESSERA_CHECK(tls != nullptr);
  SSL_CTX_set_min_proto_version(tls.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(tls.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(tls.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
  // Sessions of clients that show certificates would need a name of this server.
  SSL_CTX_set_session_cache_mode(tls.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(tls.get(), 0);
  if (!SetCertificate(security.certificate(), tls.get())) return TlsError("certificate");
  if (!SetKey(security.private_key(), tls.get())) return TlsError("private_key");
  if (!security.authority().empty() && !SetAuthority(security.authority(), tls.get())) {
    return TlsError("authority");
  }
  return tls;
}

}  // namespace tessera
