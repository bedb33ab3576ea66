#include "common/base/output_file.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"

namespace tessera {
namespace {

std::string Path(const std::string& name) {
  return std::string(getenv("TEST_TMPDIR")) + "/output_file_" + name;
}

TEST_CASE("a file that is asked for is not there before it is written", "[base]") {
  CHECK(CheckWritable("--report", "").ok());
  CHECK(CheckWritable("--report", Path("new")).ok());
  CHECK(!std::filesystem::exists(Path("new")));
}

TEST_CASE("a file that is there stays as it is until it is written", "[base]") {
  std::ofstream(Path("old")) << "before";
  CHECK(CheckWritable("--report", Path("old")).ok());
  std::string text;
  std::ifstream(Path("old")) >> text;
  CHECK(text == "before");
}

TEST_CASE("what cannot be written is refused with its flag and the reason", "[base]") {
  const absl::Status missing = CheckWritable("--report", Path("missing") + "/report.json");
  CHECK(absl::IsInvalidArgument(missing));
  CHECK(absl::StartsWith(missing.message(), "--report: \""));
  CHECK(absl::StrContains(missing.message(), "No such file or directory; name a file in a folder"));
  const absl::Status folder = CheckWritable("--report", getenv("TEST_TMPDIR"));
  CHECK(absl::IsInvalidArgument(folder));
  CHECK(absl::StrContains(folder.message(), "Is a directory"));
}

}  // namespace
}  // namespace tessera
