#include "common/checkpoint/durable_file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

std::string Path(const std::string& name) {
  return std::string(getenv("TEST_TMPDIR")) + "/durable_file_" + name;
}

TEST_CASE("what is wrong with a file whose path is not UTF-8 is told in UTF-8", "[checkpoint]") {
  std::ofstream(Path("j\xe9")) << "a plain file";
  const absl::Status made = MakeFolder(Path("j\xe9"));
  const absl::Status renamed = RenameFolder(Path("gone"), Path("j\xe9/ck"));
  const absl::Status too_long = ReadWholeFile(Path("j\xe9"), 3).status();
  for (const absl::Status& status : {made, renamed, too_long}) {
    CHECK(!status.ok());
    CHECK(absl::StrContains(status.message(), "durable_file_j\\xe9"));
    CHECK(Utf8PrefixBytes(status.message()) == status.message().size());
  }
}

TEST_CASE("a pipe, a folder and a device are refused without waiting", "[checkpoint]") {
  REQUIRE(mkfifo(Path("pipe").c_str(), 0600) == 0);
  for (const std::string& path :
       {Path("pipe"), std::string(getenv("TEST_TMPDIR")), std::string("/dev/zero")}) {
    const absl::Status status = ReadWholeFile(path, 1000).status();
    CHECK(status == absl::InvalidArgumentError("checkpoint: \"" + path + "\" is no plain file"));
  }
  CHECK(absl::IsNotFound(ReadWholeFile(Path("missing"), 1000).status()));
  std::ofstream(Path("plain")) << "text";
  CHECK(ReadWholeFile(Path("plain"), 4).value() == "text");
  CHECK(absl::IsInvalidArgument(ReadWholeFile(Path("plain"), 3).status()));
}

TEST_CASE("a new file is made where there is nothing, not even a link", "[checkpoint][strangers]") {
  std::ofstream(Path("others")) << "text";
  REQUIRE(symlink(Path("others").c_str(), Path("link").c_str()) == 0);
  REQUIRE(symlink(Path("nowhere").c_str(), Path("dangling").c_str()) == 0);
  for (const char* name : {"others", "link", "dangling"}) {
    CHECK_FALSE(DurableFile::CreateNew(Path(name)).ok());
  }
  CHECK(ReadWholeFile(Path("others"), 1000).value() == "text");
  CHECK(access(Path("nowhere").c_str(), F_OK) != 0);
  CHECK(DurableFile::CreateNew(Path("new")).ok());
}

}  // namespace
}  // namespace tessera
