#include "deploy/doctor/security_check.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/rpc/certificate_strength.h"
#include "deploy/cli/counted.h"

namespace tessera {
namespace {

// A week, which leaves time to sign a new one.
constexpr absl::Duration kTimeLeftMin = absl::Hours(7 * 24);
constexpr char kNewOne[] = "sign a new one; docs/operating/security.md";

using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

// All that a file holds: the first is who it is of, in a file that is shown.
struct CertificateFile {
  std::string key;
  std::string path;
  std::vector<Certificate> certificates;

  // "security.authority: certificate 2 of "ca.pem"".
  std::string NameOf(size_t index) const {
    return absl::StrCat(
        "security.", key, ": ",
        certificates.size() == 1 ? "" : absl::StrCat("certificate ", index + 1, " of "), "\"", path,
        "\"");
  }
};

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads all certificates of a file, in order; what is no certificate ends the list.
CertificateFile ReadCertificates(std::string key, const std::string& path) {
  CertificateFile file{std::move(key), path, {}};
  if (path.empty()) return file;
  const std::string text = TextOf(path);
  const std::unique_ptr<BIO, void (*)(BIO*)> memory(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all);
  // A file may hold the chain up to the authority.
  while (X509* const each = PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)) {
    file.certificates.emplace_back(each, X509_free);
  }
  ERR_clear_error();  // The end of the file is one.
  return file;
}

// A certificate's time; the infinite past where it cannot be read, so that the certificate counts as over.
absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  // A certificate's times are in UTC.
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string DayOf(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

bool IsInForce(X509* certificate, absl::Time now) {
  return TimeOf(X509_get0_notBefore(certificate)) <= now &&
         now <= TimeOf(X509_get0_notAfter(certificate));
}

// One authority in force is enough for what it has signed.
bool AnyInForce(const CertificateFile& file, absl::Time now) {
  return std::any_of(file.certificates.begin(), file.certificates.end(),
                     [&](const Certificate& each) { return IsInForce(each.get(), now); });
}

bool AllInForce(const CertificateFile& file, absl::Time now) {
  return std::all_of(file.certificates.begin(), file.certificates.end(),
                     [&](const Certificate& each) { return IsInForce(each.get(), now); });
}

// Finds certificates that are out of force, each as a finding of `kind`, and those that soon will be.
void JudgeDays(const CertificateFile& file, absl::Time now, Finding::Kind kind,
               const std::string& advice, Findings* findings) {
  for (size_t i = 0; i < file.certificates.size(); ++i) {
    const absl::Time first = TimeOf(X509_get0_notBefore(file.certificates[i].get())),
                     last = TimeOf(X509_get0_notAfter(file.certificates[i].get()));
    if (last < now) {
      findings->push_back(
          {kind, absl::StrCat(file.NameOf(i), " has expired: it ended at ", DayOf(last)), advice});
    } else if (now < first) {
      findings->push_back({kind,
                           absl::StrCat(file.NameOf(i), " begins at ", DayOf(first),
                                        ", and here it is ", DayOf(now)),
                           absl::StrCat("look at this machine's clock, or ", advice)});
    } else if (last - now < kTimeLeftMin) {
      findings->push_back({Finding::Kind::kNote,
                           absl::StrCat(file.NameOf(i), " expires in ",
                                        Counted(absl::ToInt64Hours(last - now) / 24, "day")),
                           "sign a new one before the job is long under way"});
    }
  }
}

// Load has refused what nobody could do without.
void NoteWeakAuthorities(const CertificateFile& file, Findings* findings) {
  for (size_t i = 0; i < file.certificates.size(); ++i) {
    const std::string why = WhyTooWeak(file.certificates[i].get(), /*is_shown=*/false);
    if (why.empty()) continue;
    findings->push_back({Finding::Kind::kNote, absl::StrCat(file.NameOf(i), " ", why),
                         "take it out of the file; what it has signed is not believed"});
  }
}

// Why a handshake would not believe what is shown; empty: it would. `purpose` is X509_PURPOSE_SSL_SERVER or _CLIENT.
std::string WhyNotBelieved(const CertificateFile& shown, const CertificateFile& believed,
                           int purpose, absl::Time now) {
  const std::unique_ptr<X509_STORE, void (*)(X509_STORE*)> store(X509_STORE_new(), X509_STORE_free);
  for (const Certificate& each : believed.certificates) {
    X509_STORE_add_cert(store.get(), each.get());
  }
  // These are gRPC's flags: who is in the store is believed, whoever signed it.
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  const auto free_stack = [](STACK_OF(X509) * stack) { sk_X509_free(stack); };
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> between(sk_X509_new_null(),
                                                                           free_stack);
  // The first one is judged. The others are links between it and an authority.
  for (size_t i = 1; i < shown.certificates.size(); ++i) {
    sk_X509_push(between.get(), shown.certificates[i].get());
  }
  const std::unique_ptr<X509_STORE_CTX, void (*)(X509_STORE_CTX*)> context(X509_STORE_CTX_new(),
                                                                           X509_STORE_CTX_free);
  X509_STORE_CTX_init(context.get(), store.get(), shown.certificates[0].get(), between.get());
  X509_STORE_CTX_set_purpose(context.get(), purpose);
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  // Short keys and old hashes are refused by this level, as in a handshake.
  X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(context.get()), SecurityLevel());
  std::string why;
  if (X509_verify_cert(context.get()) != 1) {
    why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
  }
  ERR_clear_error();
  return why;
}

// Says whether the others will believe this machine's certificate, as a server's where one runs here, and as a
// caller's.
void JudgeChain(const CertificateFile& shown, const CertificateFile& authority, bool has_server,
                absl::Time now, Findings* findings) {
  // A certificate is its own authority where there is none.
  const CertificateFile& believed = authority.certificates.empty() ? shown : authority;
  std::vector<std::pair<int, const char*>> uses;
  // Without an authority callers show no certificate.
  if (has_server) uses.emplace_back(X509_PURPOSE_SSL_SERVER, "a server's");
  if (!authority.certificates.empty()) uses.emplace_back(X509_PURPOSE_SSL_CLIENT, "a caller's");
  for (const auto& [purpose, whose] : uses) {
    const std::string why = WhyNotBelieved(shown, believed, purpose, now);
    if (why.empty()) continue;
    findings->push_back(
        {Finding::Kind::kProblem,
         absl::StrCat("security.certificate: \"", shown.path, "\" is not believed as ", whose,
                      " by \"", believed.path, "\": ", why),
         absl::StrCat("have that authority sign one, or add who signed this one to "
                      "security.authority on every machine; ",
                      "docs/operating/security.md")});
    // One use is enough to say so.
    return;
  }
}

// The address of 4 or 16 bytes, in digits: "10.0.0.1".
std::string AddressOf(const ASN1_OCTET_STRING* bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  const int size = ASN1_STRING_length(bytes);
  // subjectAltName holds addresses as 4 or 16 bytes.
  if (size == 4 || size == 16) {
    inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(bytes), text, sizeof(text));
  }
  return text;
}

// Whom the certificate is for, in words.
std::string NamesOf(X509* certificate) {
  std::vector<std::string> names;
  const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> all(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  const int count = all == nullptr ? 0 : sk_GENERAL_NAME_num(all.get());
  for (int i = 0; i < count; ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(all.get(), i);
    if (name->type == GEN_DNS) {
      names.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                         ASN1_STRING_length(name->d.dNSName));
    } else if (name->type == GEN_IPADD) {
      names.push_back(AddressOf(name->d.iPAddress));
    }
  }
  return names.empty() ? "no name or address" : absl::StrJoin(names, " and ");
}

// Whether callers of `host` take it for that host's.
bool IsFor(X509* certificate, const std::string& host) {
  const std::string bare =
      host.substr(0, host.find('%'));  // An IPv6 address's zone is in no certificate.
  unsigned char address[sizeof(in6_addr)];
  if (inet_pton(AF_INET, bare.c_str(), address) == 1 ||
      inet_pton(AF_INET6, bare.c_str(), address) == 1) {
    return X509_check_ip_asc(certificate, bare.c_str(), 0) == 1;
  }
  // The subject is asked only where there is no other name at all, as gRPC does it.
  const bool has_names = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1) >= 0;
  // gRPC takes a wildcard for a whole label alone, and not in f*.example.org.
  const unsigned flags =
      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | (has_names ? X509_CHECK_FLAG_NEVER_CHECK_SUBJECT : 0);
  return X509_check_host(certificate, bare.c_str(), bare.size(), flags, nullptr) == 1;
}

// Looks for a token that workers and servers can call with; a viewer's alone is no use to them.
void JudgeTokens(const std::string& path, Findings* findings) {
  const absl::StatusOr<std::vector<Token>> tokens = ParseTokens(TextOf(path));
  const auto may_work = [](const Token& token) {
    return token.may[static_cast<int>(Role::kWorker)];
  };
  if (tokens.ok() && std::any_of(tokens->begin(), tokens->end(), may_work)) return;
  findings->push_back({Finding::Kind::kProblem,
                       absl::StrCat("security.token_file: \"", path,
                                    "\" has no token of the role worker, want one: workers and "
                                    "servers call servers with it"),
                       "add the line `worker TOKEN` of the job's other machines; "
                       "docs/operating/security.md"});
}

}  // namespace

Findings CheckSecurity(const SecurityFiles& files, const std::vector<std::string>& hosts,
                       absl::Time now) {
  Findings findings;
  const CertificateFile shown = ReadCertificates("certificate", files.certificate);
  const CertificateFile authority = ReadCertificates("authority", files.authority);
  for (const CertificateFile* file : {&shown, &authority}) {
    if (file->path.empty() || !file->certificates.empty()) continue;
    findings.push_back({Finding::Kind::kProblem,
                        absl::StrCat("security.", file->key, ": \"", file->path,
                                     "\" holds no certificate that can be read"),
                        "make it anew; docs/operating/security.md"});
  }
  JudgeDays(shown, now, Finding::Kind::kProblem, kNewOne, &findings);
  // Without authorities callers believe the certificate itself.
  const bool has_authority = authority.certificates.empty() || AnyInForce(authority, now);
  JudgeDays(authority, now, has_authority ? Finding::Kind::kNote : Finding::Kind::kProblem,
            has_authority ? "take it out of the file; what it has signed is not believed" : kNewOne,
            &findings);
  NoteWeakAuthorities(authority, &findings);
  if (!shown.certificates.empty()) {
    X509* const own = shown.certificates[0].get();
    // Certificates that are not in force were told of already.
    if (has_authority && AllInForce(shown, now)) {
      JudgeChain(shown, authority, !hosts.empty(), now, &findings);
    }
    for (const std::string& host : hosts) {
      if (IsFor(own, host)) continue;
      findings.push_back(
          {Finding::Kind::kProblem,
           absl::StrCat("security.certificate: \"", files.certificate, "\" is for ", NamesOf(own),
                        ", want \"", host, "\": others call a server on this machine by that"),
           "sign one whose subjectAltName has it; docs/operating/security.md"});
    }
  }
  if (!files.token_file.empty()) JudgeTokens(files.token_file, &findings);
  return findings;
}

}  // namespace tessera
