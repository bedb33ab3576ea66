#include "common/checkpoint/durable_file.h"

#include <stdlib.h>

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

}  // namespace
}  // namespace tessera
