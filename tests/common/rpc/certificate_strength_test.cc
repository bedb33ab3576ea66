// Certificates that OpenSSL would not use, each made here.
#include "common/rpc/certificate_strength.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/security.h"

namespace tessera {
namespace {

using Catch::Contains;
using Key = std::shared_ptr<EVP_PKEY>;

Key Rsa(size_t bits) { return {EVP_RSA_gen(static_cast<unsigned>(bits)), EVP_PKEY_free}; }
Key Ec(const char* curve) { return {EVP_EC_gen(curve), EVP_PKEY_free}; }
Key Ed25519() { return {EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free}; }

struct Pair {
  Key key;
  std::shared_ptr<X509> certificate;
};

// `signer` is its own where that is null.
Pair Make(const Key& key, const char* name, const Pair* signer, const EVP_MD* digest) {
  Pair made{key, {X509_new(), X509_free}};
  X509* const x = made.certificate.get();
  X509_set_version(x, 2);
  static int serial = 0;
  ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  const Pair& by = signer == nullptr ? made : *signer;
  X509_set_issuer_name(x, X509_get_subject_name(by.certificate.get()));
  X509_gmtime_adj(X509_getm_notBefore(x), 0);
  X509_gmtime_adj(X509_getm_notAfter(x), 86400);
  X509_set_pubkey(x, key.get());
  REQUIRE(X509_sign(x, by.key.get(), digest) > 0);
  return made;
}

std::string WhyOwn(const Key& key, bool is_shown = true, const EVP_MD* digest = EVP_sha256()) {
  return WhyTooWeak(Make(key, "own", nullptr, digest).certificate.get(), is_shown);
}

std::string Write(const std::string& name, const std::vector<Pair>& all, const Key& key = nullptr) {
  const std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/", name);
  FILE* const file = fopen(path.c_str(), "w");
  REQUIRE(file != nullptr);
  for (const Pair& each : all) PEM_write_X509(file, each.certificate.get());
  if (key != nullptr) {
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  }
  fclose(file);
  return path;
}

std::string Refused(const std::vector<Pair>& shown, const std::vector<Pair>& authority) {
  SecurityFiles files;
  if (!shown.empty()) {
    files.certificate = Write("host.pem", shown);
    files.private_key = Write("host.key", {}, shown[0].key);
  }
  if (!authority.empty()) files.authority = Write("ca.pem", authority);
  return std::string(Security::Load(files).status().message());
}

}  // namespace

TEST_CASE("keys that a TLS connection can be made with are taken", "[rpc][security]") {
  REQUIRE(SecurityLevel() == 2);  // Debian's
  const std::vector<Key> keys = {Rsa(2048), Ec("P-256"), Ec("P-384"), Ec("P-521")};
  for (const Key& key : keys) CHECK(WhyOwn(key).empty());
  CHECK(WhyOwn(Ed25519(), true, nullptr).empty());
}

TEST_CASE("keys that OpenSSL takes for too small are refused by size and by what is wanted",
          "[rpc][security]") {
  for (const bool is_shown : {true, false}) {
    CHECK_THAT(WhyOwn(Rsa(1024), is_shown),
               Contains("has an RSA key of 1024 bits, want 2048 or more: OpenSSL takes no weaker "
                        "one at its security level 2"));
    CHECK_THAT(WhyOwn(Ec("prime192v1"), is_shown),
               Contains("has an EC key of 192 bits (prime192v1), want one of P-256 or more"));
  }
}

TEST_CASE("a key on a curve that TLS does not know is refused where a handshake signs with it",
          "[rpc][security]") {
  for (const char* curve : {"secp224r1", "secp256k1", "brainpoolP256r1"}) {
    CHECK_THAT(WhyOwn(Ec(curve)),
               Contains(absl::StrCat("has an EC key on ", curve, ", want one on P-256")));
    CHECK(WhyOwn(Ec(curve), /*is_shown=*/false).empty());
  }
}

TEST_CASE("a signature that can be forged is refused, but on one that has signed itself",
          "[rpc][security]") {
  const Pair root = Make(Rsa(2048), "root", nullptr, EVP_sha1());
  CHECK(WhyTooWeak(root.certificate.get(), false).empty());
  for (const EVP_MD* digest : {EVP_sha1(), EVP_md5()}) {
    const Pair host = Make(Ec("P-256"), "host", &root, digest);
    CHECK_THAT(WhyTooWeak(host.certificate.get(), true),
               Contains("is signed with ") && Contains(", want SHA-256 or more: OpenSSL"));
  }
}

TEST_CASE("a job's files are refused with the certificate that is too weak, wherever it is",
          "[rpc][security]") {
  const Pair root = Make(Rsa(2048), "root", nullptr, EVP_sha256());
  const Pair small_root = Make(Rsa(1024), "small", nullptr, EVP_sha256());
  const Pair host = Make(Ec("P-256"), "host", &root, EVP_sha256());
  CHECK(Refused({host}, {root}).empty());
  CHECK_THAT(
      Refused({Make(Rsa(1024), "host", &root, EVP_sha256())}, {root}),
      Contains("security.certificate: certificate 1 of \"") && Contains("host.pem\" has an RSA"));
  const Pair between = Make(Rsa(1024), "between", &root, EVP_sha256());
  CHECK_THAT(Refused({Make(Ec("P-256"), "host", &between, EVP_sha256()), between}, {root}),
             Contains("security.certificate: certificate 2 of \""));
  // A caller alone has an authority only.
  CHECK_THAT(Refused({}, {small_root}), Contains("security.authority: certificate 1 of \""));
  // Others in the file may be weak, but not the one that matters here.
  CHECK(Refused({host}, {root, small_root}).empty());
  CHECK_THAT(Refused({Make(Ec("P-256"), "host", &small_root, EVP_sha256())}, {root, small_root}),
             Contains("security.authority: certificate 2 of \"") && Contains("1024 bits"));
}

}  // namespace tessera
