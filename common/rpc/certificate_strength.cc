#include "common/rpc/certificate_strength.h"

#include <openssl/evp.h>
#include <openssl/objects.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// What a level wants, in bits: of security (SSL_CTX_set_security_level(3)), and the RSA key that has so many.
struct Level {
  int security;
  int rsa;
};
constexpr Level kLevels[] = {{0, 0},      {80, 1024},  {112, 2048},
                             {128, 3072}, {192, 7680}, {256, 15360}};

std::string Reason(int level) {
  return absl::StrCat(": OpenSSL takes no weaker one at its security level ", level,
                      ", and nobody could connect; make a new one");
}

// The name of the key's curve: "prime256v1"; "": it is on no curve with a name.
std::string CurveOf(const EVP_PKEY* key) {
  char name[64] = "";
  size_t size = 0;
  return EVP_PKEY_get_group_name(key, name, sizeof(name), &size) == 1 ? name : "";
}

// Why OpenSSL would not use the key at this security level, in words that name what would do; empty: it would.
std::string WhyKeyTooWeak(const EVP_PKEY* key, int level) {
  // Strength is compared in bits of security, which OpenSSL computes for every kind of key.
  if (EVP_PKEY_get_security_bits(key) >= kLevels[level].security) return "";
  switch (EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_RSA:
    case EVP_PKEY_RSA_PSS:
      return absl::StrCat("has an RSA key of ", EVP_PKEY_get_bits(key), " bits, want ",
                          kLevels[level].rsa, " or more", Reason(level));
    case EVP_PKEY_EC:
      return absl::StrCat("has an EC key of ", EVP_PKEY_get_bits(key), " bits (", CurveOf(key),
                          "), want one of P-256 or more", Reason(level));
    default:
      return absl::StrCat("has a key of ", EVP_PKEY_get_bits(key), " bits (",
                          OBJ_nid2ln(EVP_PKEY_get_base_id(key)), "), want RSA of ",
                          kLevels[level].rsa, " bits or more, or EC on P-256", Reason(level));
  }
}

// Why a handshake would not use a key of this kind, however strong it is; empty: it would.
std::string WhyKeyUnknown(const EVP_PKEY* key) {
  constexpr char kEnd[] = ": no TLS connection is made with another, and nobody could connect";
  const int kind = EVP_PKEY_get_base_id(key);
  if (kind == EVP_PKEY_EC) {
    const std::string curve = CurveOf(key);
    if (curve == SN_X9_62_prime256v1 || curve == SN_secp384r1 || curve == SN_secp521r1) return "";
    return absl::StrCat("has an EC key on ", curve, ", want one on P-256, P-384 or P-521", kEnd);
  }
  if (kind == EVP_PKEY_RSA || kind == EVP_PKEY_RSA_PSS || kind == EVP_PKEY_ED25519 ||
      kind == EVP_PKEY_ED448) {
    return "";
  }
  return absl::StrCat("has a key for ", OBJ_nid2ln(kind), ", want RSA, EC or Ed25519", kEnd);
}

// Why OpenSSL would not believe the certificate's signature at this level; empty: it would.
std::string WhySignatureTooWeak(X509* certificate, int level) {
  // The signature of a certificate that has signed itself is not looked at.
  if ((X509_get_extension_flags(certificate) & EXFLAG_SS) != 0) return "";
  int digest = NID_undef, key = NID_undef, bits = -1;
  if (X509_get_signature_info(certificate, &digest, &key, &bits, nullptr) != 1) bits = -1;
  if (bits >= kLevels[level].security) return "";
  return absl::StrCat("is signed with ", OBJ_nid2ln(X509_get_signature_nid(certificate)),
                      ", want SHA-256 or more", Reason(level));
}

}  // namespace

int SecurityLevel() {
  static const int level = [] {
    const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()),
                                                               SSL_CTX_free);
    // OpenSSL's own default level, which distributions raise, holds for gRPC as well.
    return context == nullptr ? 1 : std::clamp(SSL_CTX_get_security_level(context.get()), 0, 5);
  }();
  return level;
}

std::string WhyTooWeak(X509* certificate, bool is_shown) {
  const int level = SecurityLevel();
  const EVP_PKEY* const key = X509_get0_pubkey(certificate);
  if (key == nullptr) return "has a key that OpenSSL does not know, want RSA, EC or Ed25519";
  std::string why = WhyKeyTooWeak(key, level);
  if (why.empty() && is_shown) why = WhyKeyUnknown(key);
  if (why.empty()) why = WhySignatureTooWeak(certificate, level);
  return why;
}

}  // namespace tessera
