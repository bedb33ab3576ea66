// What doctor says of certificates and tokens, each made here.
#include "deploy/doctor/security_check.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

using Catch::Contains;

const absl::Time kNow = absl::FromUnixSeconds(1700000000);
constexpr absl::Duration kYear = absl::Hours(24 * 365);
const std::vector<std::string> kHere = {"127.0.0.1"};

std::string FolderOfTest() {
  const char* const root = getenv("TEST_TMPDIR");
  std::string path = absl::StrCat(root != nullptr ? root : "/tmp", "/security-XXXXXX");
  REQUIRE(mkdtemp(path.data()) != nullptr);
  return path;
}

struct Days {
  absl::Time first = kNow - kYear;
  absl::Time last = kNow + kYear;
};

struct Pair {
  std::shared_ptr<EVP_PKEY> key;
  std::shared_ptr<X509> certificate;
};

// An authority where `names` is empty, else a host's; `signer` is its own where that is null.
Pair Make(const std::string& subject, const std::string& names, const Pair* signer, Days days = {},
          const char* usage = nullptr) {
  Pair made{{EVP_EC_gen("P-256"), EVP_PKEY_free}, {X509_new(), X509_free}};
  X509* const x = made.certificate.get();
  X509_set_version(x, 2);
  static int serial = 0;
  ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(subject.c_str()), -1, -1, 0);
  const Pair& by = signer == nullptr ? made : *signer;
  X509_set_issuer_name(x, X509_get_subject_name(by.certificate.get()));
  ASN1_TIME_set(X509_getm_notBefore(x), absl::ToTimeT(days.first));
  ASN1_TIME_set(X509_getm_notAfter(x), absl::ToTimeT(days.last));
  X509_set_pubkey(x, made.key.get());
  const auto extend = [&](int id, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value);
    REQUIRE(extension != nullptr);
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
  };
  if (names.empty()) {
    extend(NID_basic_constraints, "critical,CA:TRUE");
  } else {
    extend(NID_subject_alt_name, names.c_str());
  }
  if (usage != nullptr) extend(NID_ext_key_usage, usage);
  REQUIRE(X509_sign(x, by.key.get(), EVP_sha256()) > 0);
  return made;
}

// The files of a machine.
struct Machine {
  std::string folder = FolderOfTest();
  SecurityFiles files;

  std::string Write(const std::string& name, const std::vector<Pair>& all) const {
    const std::string path = folder + "/" + name;
    FILE* const file = fopen(path.c_str(), "w");
    REQUIRE(file != nullptr);
    for (const Pair& each : all) PEM_write_X509(file, each.certificate.get());
    fclose(file);
    return path;
  }
  void Shows(const std::vector<Pair>& all) { files.certificate = Write("host.pem", all); }
  void Believes(const std::vector<Pair>& all) { files.authority = Write("ca.pem", all); }
  Finding Only(const std::vector<std::string>& hosts = kHere) const {
    const Findings findings = CheckSecurity(files, hosts, kNow);
    REQUIRE(findings.size() == 1);
    CHECK_FALSE((findings[0].kind == Finding::Kind::kProblem && findings[0].advice.empty()));
    return findings[0];
  }
};

struct Signed : Machine {
  explicit Signed(const std::string& names = "IP:127.0.0.1", Days days = {},
                  const char* usage = nullptr) {
    Believes({authority});
    Shows({Make("host", names, &authority, days, usage)});
  }
  Pair authority = Make("authority", "", nullptr);
};

}  // namespace

TEST_CASE("files that fit are no findings", "[doctor][security]") {
  CHECK(CheckSecurity({}, kHere, kNow).empty());
  const Signed machine("IP:127.0.0.1,DNS:one.example,IP:::1");
  CHECK(CheckSecurity(machine.files, {"127.0.0.1", "one.example", "::1"}, kNow).empty());
  // A certificate that signed itself is its own authority.
  Machine own;
  own.Shows({Make("host", "IP:127.0.0.1", nullptr)});
  CHECK(CheckSecurity(own.files, kHere, kNow).empty());
  // By way of another one, which is shown with it.
  Machine chain;
  const Pair root = Make("root", "", nullptr), between = Make("between", "", &root);
  chain.Believes({root});
  chain.Shows({Make("host", "IP:127.0.0.1", &between), between});
  CHECK(CheckSecurity(chain.files, kHere, kNow).empty());
}

TEST_CASE("a certificate for another name than the servers' is a problem", "[doctor][security]") {
  const Signed machine("IP:10.0.0.1,DNS:host");
  const Finding finding = machine.Only();
  CHECK(finding.kind == Finding::Kind::kProblem);
  CHECK_THAT(finding.what,
             Contains("host.pem\" is for 10.0.0.1 and host, want \"127.0.0.1\": others call"));
  CHECK(CheckSecurity(machine.files, {"host"}, kNow).empty());
  // Where only workers run any name will do.
  CHECK(CheckSecurity(machine.files, {}, kNow).empty());
  // The subject is no name beside others.
  const Signed subject("DNS:other");
  CHECK_THAT(subject.Only({"host"}).what, Contains("is for other, want \"host\""));
}

TEST_CASE("a certificate that is not yet or no longer in force is a problem",
          "[doctor][security]") {
  const Finding early = Signed("IP:127.0.0.1", {kNow + kYear, kNow + 2 * kYear}).Only();
  CHECK(early.kind == Finding::Kind::kProblem);
  CHECK_THAT(early.what, Contains("security.certificate: \"") && Contains("begins at 2024-11-13"));
  CHECK_THAT(early.advice, Contains("clock"));
  const Finding late = Signed("IP:127.0.0.1", {kNow - kYear, kNow - absl::Seconds(1)}).Only();
  CHECK(late.kind == Finding::Kind::kProblem);
  CHECK_THAT(late.what, Contains("has expired"));
  const Finding soon = Signed("IP:127.0.0.1", {kNow - kYear, kNow + absl::Hours(50)}).Only();
  CHECK(soon.kind == Finding::Kind::kNote);
  CHECK_THAT(soon.what, Contains("expires in 2 days"));
}

TEST_CASE("every certificate of a file is looked at", "[doctor][security]") {
  Signed machine;
  const Pair old = Make("old", "", nullptr, {kNow - 2 * kYear, kNow - kYear});
  // The others do without it.
  machine.Believes({machine.authority, old});
  const Finding beside = machine.Only();
  CHECK(beside.kind == Finding::Kind::kNote);
  CHECK_THAT(beside.what, Contains("security.authority: certificate 2 of ") &&
                              Contains("has expired: it ended at 2022-11-14"));
  machine.Believes({old});
  const Finding alone = machine.Only();
  CHECK(alone.kind == Finding::Kind::kProblem);
  CHECK_THAT(alone.what, Contains("security.authority: \"") && Contains("has expired"));
}

TEST_CASE("a certificate that the authority does not believe is a problem", "[doctor][security]") {
  Signed machine;
  machine.Believes({Make("another", "", nullptr)});
  const Finding finding = machine.Only();
  CHECK(finding.kind == Finding::Kind::kProblem);
  CHECK_THAT(finding.what, Contains("is not believed as a server's by \"") && Contains("ca.pem"));
  // It calls servers that ask for it, too.
  CHECK_THAT(machine.Only({}).what, Contains("is not believed as a caller's"));
  const Signed server("IP:127.0.0.1", {}, "serverAuth");
  CHECK_THAT(server.Only().what, Contains("is not believed as a caller's"));
}

TEST_CASE("a file of tokens without a worker's is a problem", "[doctor][security]") {
  Signed machine;
  machine.files.token_file = machine.folder + "/tokens";
  const auto write = [&](const char* text) { std::ofstream(machine.files.token_file) << text; };
  write("viewer 0123456789abcdef\n");
  const Finding finding = machine.Only();
  CHECK(finding.kind == Finding::Kind::kProblem);
  CHECK_THAT(finding.what, Contains("has no token of the role worker"));
  write("viewer 0123456789abcdef\nworker 0123456789abcdefg\n");
  CHECK(CheckSecurity(machine.files, kHere, kNow).empty());
  write("0123456789abcdef\n");
  CHECK(CheckSecurity(machine.files, kHere, kNow).empty());
}

}  // namespace tessera
