// Whether OpenSSL, as this machine has it, would use a certificate at all.
//
// gRPC takes one that is too weak without a word: its servers then close every connection, and its clients have no
// address to connect to.
#ifndef TESSERA_COMMON_RPC_CERTIFICATE_STRENGTH_H_
#define TESSERA_COMMON_RPC_CERTIFICATE_STRENGTH_H_

#include <openssl/x509.h>

#include <string>

namespace tessera {

// The level that TLS connections of this process have (SSL_CTX_set_security_level(3)), 0 to 5.
int SecurityLevel();

// What is wrong with its key or its signature, and what is wanted: "has an RSA key of 1024 bits, want 2048 or more".
// Empty: nothing. `is_shown`: the certificate is that of a server or a client, whose key a handshake signs with; else
// it is one that signs others. Any thread.
std::string WhyTooWeak(X509* certificate, bool is_shown);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CERTIFICATE_STRENGTH_H_
