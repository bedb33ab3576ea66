#include "common/config/local_check.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/common/config/data_directory.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

TEST_CASE("files of security that go together are wanted together", "[local_check]") {
  struct Together {
    const char* security;
    const char* errors;
  };
  const Together kAll[] = {
      {"security: {certificate: c.pem}",
       "x.yaml:23:25: security.private_key: missing beside certificate, want both or neither\n"},
      {"security: {private_key: k.pem}",
       "x.yaml:23:25: security.certificate: missing beside private_key, want both or neither\n"},
      {"security: {certificate: c.pem, private_key: k.pem, token_file: t}", ""},
      {"security: {authority: a.pem, token_file: t}", ""},
      {"security: {token_file: t, insecure: maybe}",
       "x.yaml:23:37: security.insecure: got \"maybe\", want true or false\n"},
      {"security: {token_file: t}",
       "x.yaml:23:24: security.token_file: got a file without certificate or authority, want TLS "
       "beside it: whoever listens on the way could read the token and use it\n"},
      {"security: {private_key: k.pem, token_file: t}",
       "x.yaml:23:25: security.certificate: missing beside private_key, want both or neither\n"
       "x.yaml:23:44: security.token_file: got a file without certificate or authority, want TLS "
       "beside it: whoever listens on the way could read the token and use it\n"},
  };
  for (const Together& each : kAll) {
    INFO(each.security);
    CHECK(Errors(JobWith("security: {}", each.security)) == each.errors);
  }
  CHECK(Errors(kJob, {"security.certificate=c.pem"}) ==
        "--set security.certificate: security.private_key: missing beside certificate, want both "
        "or neither\n");
}

TEST_CASE("files of security that are missing are named together, where they are written",
          "[local_check]") {
  const DataDirectory data;
  const auto security = [&](const std::string& file) {
    return absl::StrCat("security={certificate: ", data.path, "/a.gz, private_key: ", data.path,
                        "/b.gz, authority: ", data.path, "/", file, ", token_file: ", data.path,
                        "/d.gz}");
  };
  CHECK(data.Errors({security("c.gz")}).empty());
  const std::string gone = "/gone: No such file or directory\n";
  CHECK(data.Errors({security("gone")}) ==
        absl::StrCat("--set security: security.authority: got ", Quoted(data.path + "/gone"),
                     ", want a file that can be read; ", data.path, gone));
  const std::string want = "got \"/gone\", want a file that can be read; " + gone;
  const std::vector<std::string> all = {"security.certificate=/gone", "security.private_key=/gone",
                                        "security.authority=/gone", "security.token_file=/gone",
                                        "data.directory=/gone"};
  const std::string files =
      absl::StrCat("--set security.certificate: ", want, "--set security.private_key: ", want,
                   "--set security.authority: ", want, "--set security.token_file: ", want);
  CHECK_THAT(data.Errors(all), Catch::StartsWith(files + "--set data.directory: got \"/gone\""));
  CHECK(data.Errors({"security.certificate=/gone"}) ==
        "--set security.certificate: security.private_key: missing beside certificate, want both "
        "or neither\n--set security.certificate: " +
            want);
  CHECK(data.Errors({"security.authority=" + data.path}) ==
        absl::StrCat("--set security.authority: got ", Quoted(data.path),
                     ", want a file that can be read; ", data.path, ": not a file\n"));
  // Whoever loads none of them needs none.
  CHECK(data.Errors({"security.authority=/gone"}, kDataFilesAlone).empty());
  CHECK(Errors(kJob, {"security.authority=/gone"}).empty());
}

TEST_CASE("a checkpoint to go on from is in a folder that is there", "[local_check]") {
  const DataDirectory data;
  CHECK(data.Errors({"checkpoint.restore=" + data.path}).empty());
  const std::string want =
      ", where no whole checkpoint is, want a step-... folder or the one that it is in; ";
  CHECK(data.Errors({"checkpoint.restore=/gone"}) ==
        "--set checkpoint.restore: got \"/gone\"" + want + "/gone: No such file or directory\n");
  const std::string file = data.path + "/a.gz";
  CHECK(data.Errors({"checkpoint.restore=" + file}) ==
        absl::StrCat("--set checkpoint.restore: got ", Quoted(file), want, file,
                     ": Not a directory\n"));
  CHECK_THAT(data.Errors({"checkpoint.restore=/gone", "method=decentralized"}),
             !Catch::Contains("no whole checkpoint"));
  CHECK(data.Errors({"checkpoint.restore=/gone"}, kDataFilesAlone).empty());
  CHECK(data.Errors({"checkpoint.restore=/gone"}, {true, true, /*check_restore=*/false}).empty());
  CHECK(Errors(kJob, {"checkpoint.restore=/gone"}).empty());
}

}  // namespace
}  // namespace tessera
