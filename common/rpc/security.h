// Who may speak to whom: TLS from PEM files, and bearer tokens with roles.
//
//   certificate, private_key   who this process is: a server shows it to all, a client to servers that ask
//   authority                  who is believed: the certificates that the other side's must be signed by. A
//                              server that has it asks its clients for theirs (mutual TLS)
//   tokens                     what a caller may do; sent with every call, over TLS only
//
// A token file has lines `ROLE TOKEN`, ROLE one of worker, operator and viewer, or a TOKEN alone, which
// may do everything; # begins a comment. Lines may end as on Windows, and the file begin with a byte order mark; in
// UTF-16 it is refused. Every token may look (viewer), too.
//
//   worker    the data plane and the coordinator: what workers and servers need
//   operator  draining and ending the job
//   viewer    status, health, reflection
#ifndef TESSERA_COMMON_RPC_SECURITY_H_
#define TESSERA_COMMON_RPC_SECURITY_H_

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace tessera {

enum class Role { kWorker, kOperator, kViewer };

// The files' paths; empty: none.
struct SecurityFiles {
  std::string certificate;
  std::string private_key;
  std::string authority;
  std::string token_file;
};

SecurityFiles FilesOf(const v1::Security& security);

struct Token {
  std::string text;
  bool may[3] = {};  // by Role
};

// kInvalidArgument: a line is none of the above, or a token has fewer than 16 characters.
absl::StatusOr<std::vector<Token>> ParseTokens(absl::string_view text);

// Whether whoever calls `path` ("/tessera.v1.Admin/Drain") with this authorization ("Bearer ...", empty: none) may
// do so. Takes as long for a wrong token as for a right one.
//   kUnauthenticated   no token, or none of the job's
//   kPermissionDenied  its role does not allow that call; the message names both
absl::Status Authorize(const std::vector<Token>& tokens, absl::string_view path,
                       absl::string_view authorization);

// Constant after construction; any thread.
class Security {
 public:
  // Plain text, and everybody may do everything.
  Security() = default;
  // kInvalidArgument: a file cannot be read, is no plain one of at most 1 MiB, holds no PEM or no tokens, a
  // certificate is weaker than OpenSSL takes, or files are missing that others need; the message names key and
  // file. Never waits for a pipe.
  static absl::StatusOr<std::shared_ptr<const Security>> Load(const SecurityFiles& files);

  // Whether this process can serve TLS, and whether it can call with TLS.
  bool serves_tls() const { return !certificate_.empty(); }
  bool calls_tls() const { return serves_tls() || !authority_.empty(); }
  // "TLS, clients show certificates, tokens", "none".
  std::string Describe() const;

  // The PEM texts, for a server of another protocol than gRPC; empty: there is none.
  const std::string& certificate() const { return certificate_; }
  const std::string& private_key() const { return private_key_; }
  const std::string& authority() const { return authority_; }
  bool has_tokens() const { return !tokens_.empty(); }
  // Whether a caller of such a server, with this token, may do what the call `path` does. OK where there are no tokens;
  // codes are those of tessera::Authorize.
  absl::Status MayCall(absl::string_view path, absl::string_view token) const;

  std::shared_ptr<grpc::ServerCredentials> ForServer() const;
  // Credentials for a program that is none of the job's: it gets TLS and no token.
  std::shared_ptr<grpc::ChannelCredentials> ForStranger() const;
  // The credentials of a connection on which calls of `role` are made.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(Role role) const;

 private:
  std::string certificate_;
  std::string private_key_;
  std::string authority_;
  std::vector<Token> tokens_;
};

// Loads the process's own security, for all its connections, once and before the first; they are plain text until
// then. The errors are those of Load.
absl::Status UseSecurity(const SecurityFiles& files);
const Security& CurrentSecurity();

// The advice where a server would be exposed.
constexpr char kSecurityAdvice[] =
    "Set security.certificate and private_key (docs/operating/security.md), or, in a network "
    "that nobody else is in, security.insecure: true";

// Whether anybody who reaches `address` (host:port) could read and change the model, and nobody has said that it
// is meant.
bool IsExposed(absl::string_view address, const v1::Security& security);

// Whether a program of the job may listen at `address`.
//   kInvalidArgument  it is exposed, or the others will call it with TLS and it has no certificate
absl::Status CheckListen(absl::string_view address, const v1::Security& security);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_SECURITY_H_
