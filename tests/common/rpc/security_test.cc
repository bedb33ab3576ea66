#include "common/rpc/security.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

const std::string kAll = "everything-0123456789";
const std::string kWorker = "worker-token-0123456789";
const std::string kOperator = "operator-token-0123456789";
const std::string kViewer = "viewer-token-0123456789";

std::vector<Token> Tokens() {
  auto tokens = ParseTokens("# of a job\n\n" + kAll + "\nworker " + kWorker + "\n  operator\t" +
                            kOperator + " # may end it\r\nviewer " + kViewer);
  REQUIRE(tokens.ok());
  REQUIRE(tokens->size() == 4);
  return *tokens;
}

TEST_CASE("a token may do what its role allows, and everybody who has one may look",
          "[rpc][security]") {
  const std::vector<Token> tokens = Tokens();
  struct {
    const char* path;
    bool worker, operator_, viewer;
  } calls[] = {
      {"/tessera.v1.ParameterServer/Push", true, false, false},
      {"/tessera.v1.ParameterServer/Pull", true, false, false},
      {"/tessera.v1.Coordinator/Join", true, false, false},
      {"/tessera.v1.Coordinator/Attach", true, false, false},
      {"/tessera.v1.TensorFile/Read", true, false, false},
      {"/tessera.v1.CheckpointStore/Write", true, false, false},
      {"/tessera.v1.Admin/Drain", false, true, false},
      {"/tessera.v1.Admin/Stop", false, true, false},
      {"/tessera.v1.Status/Get", true, true, true},
      {"/grpc.health.v1.Health/Check", true, true, true},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", true, true, true},
      {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true, true, true},
      // What nobody has thought of is the operator's.
      {"/tessera.v1.Parameter/Push", false, true, false},
      {"", false, true, false},
  };
  for (const auto& call : calls) {
    INFO(call.path);
    CHECK(Authorize(tokens, call.path, "Bearer " + kAll).ok());
    CHECK(Authorize(tokens, call.path, "Bearer " + kWorker).ok() == call.worker);
    CHECK(Authorize(tokens, call.path, "Bearer " + kOperator).ok() == call.operator_);
    CHECK(Authorize(tokens, call.path, "Bearer " + kViewer).ok() == call.viewer);
    for (const std::string& wrong :
         {std::string(), std::string("Bearer "), std::string("Bearer x"), "Bearer " + kAll + "x",
          "Bearer " + kAll.substr(1), "Basic " + kAll}) {
      CHECK(Authorize(tokens, call.path, wrong).code() == absl::StatusCode::kUnauthenticated);
    }
  }
  CHECK(Authorize(tokens, "/tessera.v1.Admin/Drain", "Bearer " + kViewer).message() ==
        "token: its role does not allow /tessera.v1.Admin/Drain, want one of the role operator");
  CHECK(Authorize(tokens, "/tessera.v1.Admin/Drain", "").message() ==
        "token: none came with /tessera.v1.Admin/Drain, want one of the role operator; name a "
        "file that has one: security.token_file of a job, --token-file of tessera status and "
        "checkpoint");
}

TEST_CASE("a token file that is not one is refused, and no token is quoted", "[rpc][security]") {
  const auto refused = [](const std::string& text) {
    return std::string(ParseTokens(text).status().message());
  };
  CHECK(refused("") == "has no tokens, want one on each line");
  CHECK(refused("# nothing\n \n") == "has no tokens, want one on each line");
  CHECK(refused(kAll + "\nshort") == "line 2: the token has 5 characters, want 16 or more");
  const std::string unknown =
      "line 1: want a token, or a role (worker, operator, viewer) and a token";
  CHECK(refused("admin " + kAll) == unknown);
  CHECK(refused("worker viewer " + kAll) == unknown);
  CHECK(refused("secret-of-some-length secret-of-some-length") == unknown);
}

TEST_CASE("a token file may be another system's: a byte order mark, line ends of two characters",
          "[rpc][security]") {
  for (const std::string& text : {"\xef\xbb\xbf" + kAll + "\r\nworker " + kWorker + "\r\n",
                                  "\xef\xbb\xbf# all\r\n" + kAll + "\nworker " + kWorker}) {
    const auto tokens = ParseTokens(text);
    REQUIRE(tokens.ok());
    REQUIRE(tokens->size() == 2);
    CHECK(tokens->at(0).text == kAll);
    CHECK(tokens->at(1).text == kWorker);
  }
  // A mark anywhere else, and the one of UTF-16, are part of no token that anybody sends.
  std::string wide = "\xff\xfe";
  for (const char c : kAll) wide += std::string{c, '\0'};
  for (const std::string& text : {kAll + "\n\xef\xbb\xbf" + kWorker, wide}) {
    CHECK(ParseTokens(text).status().message() ==
          absl::StrCat("line ", text == wide ? 1 : 2,
                       ": the token has characters that no call can "
                       "carry, want ASCII without blanks; save the file as UTF-8"));
  }
}

TEST_CASE("files that do not fit together are named", "[rpc][security]") {
  const auto refused = [](const SecurityFiles& files) {
    return std::string(Security::Load(files).status().message());
  };
  CHECK(refused({"a.pem", "", "", ""}) ==
        "security.private_key: missing beside certificate, want both or neither");
  CHECK(refused({"", "a.pem", "", ""}) ==
        "security.certificate: missing beside private_key, want both or neither");
  CHECK(refused({"", "", "/nowhere/a.pem", ""}) ==
        "security.authority: got \"/nowhere/a.pem\", want a file that can be read: No such file or "
        "directory");
  CHECK(refused({"", "", "", "/nowhere/tokens"}).find("want TLS beside it") != std::string::npos);
  CHECK(refused({"", "", "tests/common/rpc/BUILD.bazel", ""}).find("BUILD.bazel") !=
        std::string::npos);
  CHECK(refused({}).empty());
  CHECK((*Security::Load({}))->Describe() == "none");
}

TEST_CASE("a pipe, a device, a folder and a large file are refused by key, and not waited for",
          "[rpc][security]") {
  const std::string folder = getenv("TEST_TMPDIR");
  const std::string pipe = folder + "/pipe", large = folder + "/large.pem",
                    linked = folder + "/linked";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::ofstream(large) << "-----BEGIN CERTIFICATE-----" << std::string(1 << 20, 'A');
  REQUIRE(symlink(pipe.c_str(), linked.c_str()) == 0);
  for (const std::string& path : {pipe, linked, folder, std::string("/dev/zero"), large}) {
    const std::string why =
        path == large ? "it is longer than 1048576 bytes" : "it is no plain file";
    CHECK(Security::Load({"", "", path, ""}).status().message() ==
          "security.authority: got \"" + path + "\", want a file that can be read: " + why);
  }
}

v1::Security Keys(const std::string& certificate, const std::string& authority, bool insecure) {
  v1::Security keys;
  keys.set_certificate(certificate);
  keys.set_authority(authority);
  keys.set_insecure(insecure);
  return keys;
}

TEST_CASE("nobody listens in plain text where other machines can call, unless the job says so",
          "[rpc][security]") {
  CHECK(CheckListen("127.0.0.1:7000", Keys("", "", false)).ok());
  CHECK(CheckListen("10.0.0.1:7000", Keys("", "", true)).ok());
  CHECK(CheckListen("10.0.0.1:7000", Keys("c.pem", "", false)).ok());
  CHECK(CheckListen("10.0.0.1", Keys("", "", false))
            .ok());  // No address: refused when it is listened at.
  for (const char* address :
       {"10.0.0.1:7000", "0.0.0.0:7000", "[::]:7000", "127.example.org:7000"}) {
    INFO(address);
    CHECK(IsExposed(address, Keys("", "", false)));
    CHECK(CheckListen(address, Keys("", "", false)).message() ==
          absl::StrCat("security: none, and \"", address,
                       "\" can be reached from other machines: anybody there could "
                       "read and change the model. ",
                       kSecurityAdvice));
  }
}

TEST_CASE("who will be called with TLS needs a certificate, on this machine, too",
          "[rpc][security]") {
  CHECK(CheckListen("127.0.0.1:7000", Keys("c.pem", "ca.pem", false)).ok());
  for (const bool insecure : {false, true}) {
    CHECK(CheckListen("127.0.0.1:7000", Keys("", "ca.pem", insecure)).message() ==
          "security.certificate: missing beside authority, want this program's certificate and "
          "private_key: \"127.0.0.1:7000\" will be called with TLS");
  }
}

}  // namespace
}  // namespace tessera
