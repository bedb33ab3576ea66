#include "deploy/cli/fetch_advice.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace tessera {
namespace {

namespace fs = std::filesystem;

v1::Job JobOf(const std::string& directory) {
  v1::Job job;
  job.mutable_data()->set_directory(directory);
  job.mutable_data()->mutable_train()->add_features("train.gz");
  job.mutable_data()->mutable_test()->add_features("test.gz");
  return job;
}

std::string Root() {
  const char* const base = std::getenv("TEST_TMPDIR");
  return std::string(base == nullptr ? "/tmp" : base) + "/root";
}

TEST_CASE("data that is missing is named with the command that gets it, which lies beside it",
          "[cli]") {
  const std::string root = Root();
  fs::remove_all(root);
  fs::create_directories(root + "/deploy/jobs");
  std::ofstream(root + "/deploy/fetch_data.sh") << "#!/bin/sh\n";
  CHECK(FetchAdvice(JobOf(root + "/deploy/jobs/../../data/mnist")) ==
        "get it with: " + root + "/deploy/fetch_data.sh mnist");
  CHECK_THAT(
      FetchAdvice(JobOf(root + "/data/cifar10")),
      Catch::StartsWith("get it with: " + root + "/deploy/fetch_data.sh --from DIR cifar10"));
  // A set's folder elsewhere is given to the script.
  CHECK(FetchAdvice(JobOf(root + "/mine/mnist/")) ==
        "get it with: " + root + "/deploy/fetch_data.sh --to " + root + "/mine mnist");
  CHECK(FetchAdvice(JobOf("/nowhere/at/all/mnist")) ==
        "get it with: deploy/fetch_data.sh --to /nowhere/at/all mnist");
  CHECK(FetchAdvice(JobOf(root + "/data/other")).empty());
  fs::create_directories(root + "/data/mnist");
  std::ofstream(root + "/data/mnist/train.gz") << "x";
  CHECK_FALSE(FetchAdvice(JobOf(root + "/data/mnist")).empty());
  std::ofstream(root + "/data/mnist/test.gz") << "x";
  CHECK(FetchAdvice(JobOf(root + "/data/mnist")).empty());
}

TEST_CASE("the sets are those of fetch_data.sh", "[cli]") {
  std::ifstream file("deploy/fetch_data.sh");
  const std::string script{std::istreambuf_iterator<char>(file), {}};
  REQUIRE_FALSE(script.empty());
  std::set<std::string> names, listed;
  // The table's lines: set|folder|file|address or -|sum.
  for (size_t begin = 0; begin < script.size();) {
    const size_t end = std::min(script.find('\n', begin), script.size());
    const std::string line = script.substr(begin, end - begin);
    begin = end + 1;
    const size_t bar = line.find('|');
    if (bar == std::string::npos || line.size() < 64 || line.find_first_of(" '\"") < line.size() ||
        line.find("|", line.size() - 65) != line.size() - 65) {
      continue;
    }
    listed.insert(line.substr(0, bar) + (line.find("|-|") == std::string::npos ? " public" : ""));
  }
  for (const FetchedSet& set : FetchedSets()) {
    names.insert(std::string(set.name) + (set.is_public ? " public" : ""));
  }
  CHECK(names == listed);
}

}  // namespace
}  // namespace tessera
