#include "common/config/job_origin.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tessera {
namespace {

v1::JobOrigin Of(std::vector<std::string> words, const std::string& path,
                 const std::vector<std::string>& overrides = {}) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return OriginOf(arguments, path, overrides);
}

TEST_CASE("a process tells its job's file from the root, and its command as for a shell",
          "[config]") {
  const std::string folder = getenv("TEST_TMPDIR");
  std::ofstream(folder + "/job.yaml") << "name: x\n";
  const v1::JobOrigin origin =
      Of({"bin/tessera", "run", "my job.yaml", "--set", "name=it's", ""},
         folder + "/../" + folder.substr(folder.rfind('/')) + "/job.yaml", {"name=it's"});
  CHECK(origin.command() == "bin/tessera run 'my job.yaml' --set 'name=it'\\''s' ''");
  CHECK(origin.job_file() == folder + "/job.yaml");
  REQUIRE(origin.overrides_size() == 1);
  CHECK(origin.overrides(0) == "name=it's");
  CHECK_FALSE(origin.host().empty());
  CHECK(absl::FromUnixNanos(origin.started_ns()) <= absl::Now());
  CHECK(absl::FromUnixNanos(origin.started_ns()) > absl::Now() - absl::Minutes(1));
  // What can be read but once, and what is not there, has no place of its own.
  CHECK(Of({}, "/dev/stdin").job_file() == "/dev/stdin");
  CHECK(Of({}, "nowhere.yaml").job_file() == "nowhere.yaml");
}

TEST_CASE("it goes to a child as one argument, whatever bytes are in it", "[config]") {
  const v1::JobOrigin origin = Of({"run", "\xff\n\"x\""}, "a\xff.yaml", {"name=\"\n\xe9"});
  const auto same = OriginOfText(OriginText(origin));
  REQUIRE(same.ok());
  CHECK(same->SerializeAsString() == origin.SerializeAsString());
  for (const char* text : {"", "x", "[]", "{\"nothing\": 1}"}) {
    INFO(text);
    CHECK(absl::IsInvalidArgument(OriginOfText(text).status()));
  }
}

}  // namespace
}  // namespace tessera
