#include "deploy/cli/run/job_children.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera {
namespace {

TEST_CASE("no process is started where a program is missing", "[cli][run]") {
  const auto folders = RunFolders::Open("");
  REQUIRE(folders.ok());
  v1::Job job;
  job.mutable_method()->mutable_data_parallel();
  // Beside this test there are none.
  const auto children = JobChildren::Create(job, folders->get(), [](const std::string&) {});
  REQUIRE(absl::IsNotFound(children.status()));
  CHECK_THAT(std::string(children.status().message()), Catch::Contains("tessera-server"));
}

}  // namespace
}  // namespace tessera
