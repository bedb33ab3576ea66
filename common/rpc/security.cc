#include "common/rpc/security.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/rpc/certificate_strength.h"

namespace tessera {
namespace {

// Sixteen characters drawn at random cannot be guessed over a network.
constexpr size_t kTokenCharactersMin = 16;
// The most bytes that a file of certificates, keys or tokens may have.
constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr absl::string_view kRoleNames[] = {"worker", "operator", "viewer"};

absl::string_view NameOf(Role role) { return kRoleNames[static_cast<int>(role)]; }

// The role that calls of a service want. Unknown services want the most.
Role RoleFor(absl::string_view path) {
  for (const absl::string_view service :
       {"/tessera.v1.ParameterServer/", "/tessera.v1.Coordinator/", "/tessera.v1.StandbyControl/",
        "/tessera.v1.Replication/", "/tessera.v1.Activations/", "/tessera.v1.TensorFile/",
        "/tessera.v1.CheckpointStore/"}) {
    if (absl::StartsWith(path, service)) return Role::kWorker;
  }
  for (const absl::string_view service :
       {"/tessera.v1.Status/", "/grpc.health.v1.Health/", "/grpc.reflection."}) {
    if (absl::StartsWith(path, service)) return Role::kViewer;
  }
  return Role::kOperator;
}

bool SameText(absl::string_view a, absl::string_view b) {
  // The comparison takes the same time wherever texts differ, so that its time tells nothing of a token.
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// Fills `text`; returns what went wrong, or nothing.
std::string ReadFile(const std::string& path, std::string* text) {
  // O_NONBLOCK keeps a pipe without a writer from holding us for ever.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::strerror(errno);
  struct stat about;
  std::string problem;
  if (fstat(file, &about) != 0) {
    problem = std::strerror(errno);
  } else if (!S_ISREG(about.st_mode)) {
    problem = "it is no plain file";
  }
  char piece[16384];
  while (problem.empty()) {
    const ssize_t got = read(file, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) problem = std::strerror(errno);
    if (got <= 0) break;
    text->append(piece, got);
    if (text->size() > kFileBytesMax) {
      problem = absl::StrCat("it is longer than ", kFileBytesMax, " bytes");
    }
  }
  close(file);
  return problem;
}

// Reads the file that a key names; the error names the key, as a person sees the job and not the file.
absl::StatusOr<std::string> ReadAll(absl::string_view key, const std::string& path) {
  std::string text;
  const std::string problem = ReadFile(path, &text);
  if (problem.empty()) return text;
  return absl::InvalidArgumentError(absl::StrCat("security.", key, ": got \"", path,
                                                 "\", want a file that can be read: ", problem));
}

// Reads a file that must have a PEM block of kind `what`; empty where the job names none.
absl::StatusOr<std::string> ReadPem(absl::string_view key, const std::string& path,
                                    absl::string_view what) {
  if (path.empty()) return std::string();
  TESSERA_ASSIGN_OR_RETURN(std::string text, ReadAll(key, path));
  if (absl::StrContains(text, "-----BEGIN ") && absl::StrContains(text, what)) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("security.", key, ": \"", path, "\" has no PEM block with a ", what));
}

using Certificates = std::vector<std::unique_ptr<X509, void (*)(X509*)>>;

// gRPC takes what is damaged without a word, and then nobody can connect.
absl::StatusOr<Certificates> ReadCertificates(absl::string_view key, const std::string& path,
                                              const std::string& text) {
  Certificates all;
  if (path.empty()) return all;
  const std::unique_ptr<BIO, void (*)(BIO*)> memory(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all);
  // Errors of earlier calls on this thread would otherwise be taken for this file's.
  ERR_clear_error();
  while (X509* const certificate = PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(certificate, X509_free);
  }
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  // At the end of the text OpenSSL reports that no further block begins, which is no error here.
  const bool is_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (is_end && !all.empty()) return all;
  const char* const reason = ERR_reason_error_string(error);
  return absl::InvalidArgumentError(absl::StrCat(
      "security.", key, ": certificate ", all.size() + 1, " of \"", path, "\" cannot be read",
      reason == nullptr ? "" : ": ", reason == nullptr ? "" : reason));
}

absl::Status TooWeak(absl::string_view key, const std::string& path, size_t index,
                     absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("security.", key, ": certificate ", index + 1, " of \"", path, "\" ", why));
}

// Refuses weak certificates. The shown ones must be strong enough as a whole; of an authority's file the one that
// has signed what is shown, or where none has, any: others in the file may be old.
absl::Status CheckStrength(const SecurityFiles& files, const Certificates& shown,
                           const Certificates& authority) {
  for (size_t i = 0; i < shown.size(); ++i) {
    const std::string why = WhyTooWeak(shown[i].get(), /*is_shown=*/i == 0);
    if (!why.empty()) return TooWeak("certificate", files.certificate, i, why);
  }
  absl::Status weak;
  size_t weak_count = 0;
  for (size_t i = 0; i < authority.size(); ++i) {
    const std::string why = WhyTooWeak(authority[i].get(), /*is_shown=*/false);
    if (why.empty()) continue;
    ++weak_count;
    absl::Status status = TooWeak("authority", files.authority, i, why);
    // The certificate that signed ours is the one that clients will check: if it is weak, others do not help.
    for (const auto& each : shown) {
      if (X509_check_issued(authority[i].get(), each.get()) == X509_V_OK) return status;
    }
    if (weak.ok()) weak = std::move(status);
  }
  return weak_count == authority.size() ? weak : absl::OkStatus();
}

// gRPC takes a key that is another certificate's, and then nobody can connect.
absl::Status CheckPair(const std::string& certificate, const std::string& key) {
  const auto memory = [](const std::string& text) {
    return std::unique_ptr<BIO, void (*)(BIO*)>(
        BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all);
  };
  const std::unique_ptr<X509, void (*)(X509*)> shown(
      PEM_read_bio_X509(memory(certificate).get(), nullptr, nullptr, nullptr), X509_free);
  TESSERA_CHECK(shown != nullptr);
  // Without a password to try, one that wants it is refused, not asked for on the terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> own(
      PEM_read_bio_PrivateKey(memory(key).get(), nullptr, no_password, nullptr), EVP_PKEY_free);
  if (own == nullptr) {
    return absl::InvalidArgumentError(
        "security.private_key: no key can be read from it, want one without a password");
  }
  if (X509_check_private_key(shown.get(), own.get()) == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "security.private_key: is not that of security.certificate, want the key that was made with "
      "it");
}

class TokenProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit TokenProcessor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata* consumed,
                       OutputMetadata*) override {
    const auto find = [&](const char* key) {
      const auto found = metadata.find(key);
      return found == metadata.end()
                 ? absl::string_view()
                 : absl::string_view(found->second.data(), found->second.size());
    };
    const absl::string_view authorization = find("authorization");
    const absl::Status status = Authorize(tokens_, find(":path"), authorization);
    // The token has done its work and is taken out, so that no service sees it.
    if (!authorization.empty()) consumed->emplace("authorization", std::string(authorization));
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                        std::string(status.message()));
  }

 private:
  const std::vector<Token> tokens_;
};

// The security of this process. It is never destroyed, as connections may use it until the process ends.
std::shared_ptr<const Security>& ProcessSecurity() {
  static auto* const security =
      new std::shared_ptr<const Security>(std::make_shared<const Security>());
  return *security;
}

}  // namespace

absl::StatusOr<std::vector<Token>> ParseTokens(absl::string_view text) {
  std::vector<Token> tokens;
  int number = 0;
  // Editors of some systems write a byte order mark; it is no part of the first token.
  absl::ConsumePrefix(&text, kByteOrderMark);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    Token token;
    token.text = words.back();
    bool is_known = words.size() == 1;
    for (int role = 0; role < 3; ++role) {
      const bool named = words.size() == 2 && words[0] == kRoleNames[role];
      is_known = is_known || named;
      token.may[role] = words.size() == 1 || named;
    }
    // Whoever may train or operate may look as well.
    token.may[static_cast<int>(Role::kViewer)] = true;
    // Tokens are secret: no message quotes what may be one.
    if (!is_known || words.size() > 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": want a token, or a role (worker, operator, viewer) and a token"));
    }
    const bool can_be_sent = std::all_of(token.text.begin(), token.text.end(), [](char c) {
      return absl::ascii_isgraph(static_cast<unsigned char>(c));
    });
    if (!can_be_sent) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number,
                       ": the token has characters that no call can carry, want ASCII without "
                       "blanks; save the file as UTF-8"));
    }
    if (token.text.size() < kTokenCharactersMin) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": the token has ",
                                                     token.text.size(), " characters, want ",
                                                     kTokenCharactersMin, " or more"));
    }
    tokens.push_back(std::move(token));
  }
  if (tokens.empty()) return absl::InvalidArgumentError("has no tokens, want one on each line");
  return tokens;
}

absl::Status Authorize(const std::vector<Token>& tokens, absl::string_view path,
                       absl::string_view authorization) {
  const Role role = RoleFor(path);
  if (authorization.empty()) {
    return absl::UnauthenticatedError(
        absl::StrCat("token: none came with ", path, ", want one of the role ", NameOf(role),
                     "; name a file that has one: security.token_file "
                     "of a job, --token-file of tessera status and checkpoint"));
  }
  absl::ConsumePrefix(&authorization, "Bearer ");
  bool is_known = false;
  bool may = false;
  for (const Token& token : tokens) {
    // Every token is compared, even after one has matched: the time does not tell which.
    const bool same = SameText(token.text, authorization);
    is_known = is_known || same;
    may = may || (same && token.may[static_cast<int>(role)]);
  }
  if (may) return absl::OkStatus();
  if (!is_known) {
    return absl::UnauthenticatedError(
        absl::StrCat("token: the one that came with ", path, " is not one of this job's"));
  }
  return absl::PermissionDeniedError(absl::StrCat("token: its role does not allow ", path,
                                                  ", want one of the role ", NameOf(role)));
}

absl::StatusOr<std::shared_ptr<const Security>> Security::Load(const SecurityFiles& files) {
  const auto security = std::make_shared<Security>();
  if (files.certificate.empty() != files.private_key.empty()) {
    return absl::InvalidArgumentError(
        files.certificate.empty()
            ? "security.certificate: missing beside private_key, want both or neither"
            : "security.private_key: missing beside certificate, want both or neither");
  }
  TESSERA_ASSIGN_OR_RETURN(security->certificate_,
                           ReadPem("certificate", files.certificate, "CERTIFICATE"));
  TESSERA_ASSIGN_OR_RETURN(security->private_key_,
                           ReadPem("private_key", files.private_key, "PRIVATE KEY"));
  TESSERA_ASSIGN_OR_RETURN(security->authority_,
                           ReadPem("authority", files.authority, "CERTIFICATE"));
  TESSERA_ASSIGN_OR_RETURN(
      const Certificates shown,
      ReadCertificates("certificate", files.certificate, security->certificate_));
  TESSERA_ASSIGN_OR_RETURN(const Certificates authority,
                           ReadCertificates("authority", files.authority, security->authority_));
  TESSERA_RETURN_IF_ERROR(CheckStrength(files, shown, authority));
  if (!files.certificate.empty()) {
    TESSERA_RETURN_IF_ERROR(CheckPair(security->certificate_, security->private_key_));
  }
  if (files.token_file.empty()) return security;
  if (!security->calls_tls()) {
    return absl::InvalidArgumentError(
        "security.token_file: got a file without certificate or authority, want TLS beside it: "
        "whoever listens on the way could read the token and use it");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadAll("token_file", files.token_file));
  absl::StatusOr<std::vector<Token>> tokens = ParseTokens(text);
  if (!tokens.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("security.token_file: \"", files.token_file,
                                                   "\": ", tokens.status().message()));
  }
  security->tokens_ = *std::move(tokens);
  return security;
}

std::string Security::Describe() const {
  if (!serves_tls()) return "none";
  return absl::StrCat("TLS", authority_.empty() ? "" : ", clients show certificates",
                      tokens_.empty() ? "" : ", tokens");
}

absl::Status Security::MayCall(absl::string_view path, absl::string_view token) const {
  return tokens_.empty() ? absl::OkStatus() : Authorize(tokens_, path, token);
}

std::shared_ptr<grpc::ServerCredentials> Security::ForServer() const {
  if (!serves_tls()) return grpc::InsecureServerCredentials();
  // With an authority a client must show a certificate that it signed; nobody else gets past the handshake.
  grpc::SslServerCredentialsOptions options(
      authority_.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                         : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_key_cert_pairs.push_back({private_key_, certificate_});
  options.pem_root_certs = authority_;
  const std::shared_ptr<grpc::ServerCredentials> credentials = grpc::SslServerCredentials(options);
  if (!tokens_.empty()) {
    credentials->SetAuthMetadataProcessor(std::make_shared<TokenProcessor>(tokens_));
  }
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> Security::ForStranger() const {
  grpc::SslCredentialsOptions options;
  // A certificate that signed itself is its own authority.
  options.pem_root_certs = authority_.empty() ? certificate_ : authority_;
  options.pem_private_key = private_key_;
  options.pem_cert_chain = certificate_;
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Security::ForChannel(Role role) const {
  if (!calls_tls()) return grpc::InsecureChannelCredentials();
  const std::shared_ptr<grpc::ChannelCredentials> channel = ForStranger();
  // The token that may do the least beside this call, so that no more is shown than is needed.
  const Token* best = nullptr;
  const auto power = [](const Token& t) { return t.may[0] + t.may[1] + t.may[2]; };
  for (const Token& token : tokens_) {
    if (!token.may[static_cast<int>(role)]) continue;
    if (best == nullptr || power(token) < power(*best)) best = &token;
  }
  if (best == nullptr) return channel;
  return grpc::CompositeChannelCredentials(channel, grpc::AccessTokenCredentials(best->text));
}

SecurityFiles FilesOf(const v1::Security& security) {
  return {security.certificate(), security.private_key(), security.authority(),
          security.token_file()};
}

absl::Status UseSecurity(const SecurityFiles& files) {
  TESSERA_ASSIGN_OR_RETURN(ProcessSecurity(), Security::Load(files));
  return absl::OkStatus();
}

const Security& CurrentSecurity() { return *ProcessSecurity(); }

bool IsExposed(absl::string_view address, const v1::Security& security) {
  // An address that is none is refused when it is listened at.
  return security.certificate().empty() && !security.insecure() &&
         ParseHostPort(address).has_value() && !IsLoopback(address);
}

absl::Status CheckListen(absl::string_view address, const v1::Security& security) {
  if (!security.authority().empty() && security.certificate().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("security.certificate: missing beside authority, want this program's "
                     "certificate and private_key: \"",
                     address, "\" will be called with TLS"));
  }
  if (!IsExposed(address, security)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("security: none, and \"", address,
                   "\" can be reached from other machines: anybody there could read and change ",
                   "the model. ", kSecurityAdvice));
}

}  // namespace tessera
