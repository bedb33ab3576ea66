#include "deploy/cli/start_notes.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/security.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

using Catch::Contains;

std::vector<std::string> Notes(const std::vector<std::string>& overrides) {
  const v1::Job job = Good(kJob, overrides);
  return StartNotesOn(job, *RecipeFor(job));
}

const std::string kFar = "cluster.servers=[10.0.0.1:7000, 127.0.0.1:7000, head:7000]";

TEST_CASE("a job whose programs start has no note", "[start_notes]") {
  CHECK(Notes({}).empty());
  CHECK(Notes({"cluster.servers=[127.0.0.1:7000, '[::1]:7000', localhost:7001]"}).empty());
  CHECK(Notes({kFar, "security.insecure=true"}).empty());
}

TEST_CASE("servers that others can reach without security are noted with what to write",
          "[start_notes]") {
  CHECK(Notes({kFar}) == std::vector<std::string>{absl::StrCat(
                             "cluster.servers: a server at 10.0.0.1:7000 or head:7000 ends at once "
                             "with 2, as other machines can reach it and the job has no security. ",
                             kSecurityAdvice)});
}

TEST_CASE("files of certificates that no program would take are noted", "[start_notes]") {
  const std::vector<std::string> notes =
      Notes({"security={certificate: /dev/null, private_key: /dev/null}"});
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0],
             Contains("security.certificate: got \"/dev/null\"") && Contains("ends with 2"));
}

TEST_CASE("who needs an address of its own is noted", "[start_notes]") {
  std::vector<std::string> halves = {
      "method=layer_separation", "cluster.workers=3", "model.input=[1, 4, 4]",
      "model.layers=[conv2d: {channels: 2, kernel: 3}, linear: {units: 2}]"};
  CHECK(Notes(halves).empty());
  halves.insert(halves.end(), {kFar, "security.insecure=true"});
  const std::vector<std::string> notes = Notes(halves);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Contains("workers from rank 2 on") && Contains("--listen HOST:PORT"));
}

}  // namespace
}  // namespace tessera
