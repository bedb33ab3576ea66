// The jobs that come with Tessera.
#include <catch2/catch.hpp>

#include <dirent.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/config/job_digest.h"
#include "common/config/job_print.h"
#include "common/config/job_reader.h"
#include "common/layout/parameters.h"

namespace tessera {
namespace {

std::vector<std::string> JobFiles() {
  std::vector<std::string> files;
  DIR* const directory = opendir("deploy/jobs");
  REQUIRE(directory != nullptr);
  while (const dirent* entry = readdir(directory)) {
    if (absl::EndsWith(entry->d_name, ".yaml")) {
      files.push_back(std::string("deploy/jobs/") + entry->d_name);
    }
  }
  closedir(directory);
  std::sort(files.begin(), files.end());
  return files;
}

TEST_CASE("every job file is right, and prints to itself", "[job_files]") {
  const std::vector<std::string> files = JobFiles();
  CHECK(files.size() >= 14);
  for (const std::string& file : files) {
    const JobReading reading = ReadJobFile(file, {}, {/*check_files=*/false});
    INFO(FormatJobErrors(reading.errors));
    REQUIRE(reading.ok());
    const JobReading printed = ReadJob({PrintJob(reading.job), "printed", "/", {}}, {false});
    REQUIRE(printed.ok());
    CHECK(JobDigest(printed.job) == JobDigest(reading.job));
    CHECK(printed.job.SerializeAsString() == reading.job.SerializeAsString());
  }
}

TEST_CASE("models of the literature have the published numbers of parameters", "[job_files]") {
  const std::map<std::string, int64_t> published = {
      {"cifar_resnet18", 11173962},     {"imagenet_alexnet", 61100840},
      {"imagenet_googlenet", 6624904},  {"imagenet_inception3", 23834568},
      {"imagenet_resnet18", 11689512},  {"imagenet_resnet50", 25557032},
      {"imagenet_resnet152", 60192808}, {"imagenet_vgg16", 138357544},
  };
  for (const auto& [name, parameters] : published) {
    CAPTURE(name);
    const JobReading reading = ReadJobFile("deploy/jobs/" + name + ".yaml", {}, {false});
    REQUIRE(reading.ok());
    const absl::StatusOr<ModelShape> shape = ShapeOf(reading.job.model());
    REQUIRE(shape.ok());
    CHECK(shape->size == parameters);
  }
}

TEST_CASE("a job is read back from its canonical text", "[job_files]") {
  for (const std::string& file : JobFiles()) {
    const JobReading reading = ReadJobFile(file, {}, {/*check_files=*/false});
    INFO(file);
    REQUIRE(reading.ok());
    const std::string text = CanonicalJobText(reading.job);
    CHECK(CanonicalJobText(JobOfText(text)) == text);
  }
}

TEST_CASE("no two job files have one digest or one name", "[job_files]") {
  std::vector<std::string> digests;
  std::vector<std::string> names;
  for (const std::string& file : JobFiles()) {
    const JobReading reading = ReadJobFile(file, {}, {/*check_files=*/false});
    digests.push_back(JobDigest(reading.job));
    names.push_back(reading.job.name());
  }
  for (std::vector<std::string>* all : {&digests, &names}) {
    std::sort(all->begin(), all->end());
    CHECK(std::adjacent_find(all->begin(), all->end()) == all->end());
  }
}

TEST_CASE("the digits jobs find their data in the tree", "[job_files]") {
  for (const char* name :
       {"digits", "digits_async", "digits_decentralized", "digits_diloco", "digits_diloco_async",
        "digits_local_sgd", "digits_slim_dp", "digits_softsync", "digits_ssp"}) {
    const std::string file = std::string("deploy/jobs/") + name + ".yaml";
    const JobReading reading = ReadJobFile(file, {}, {/*check_files=*/true});
    INFO(FormatJobErrors(reading.errors));
    CHECK(reading.ok());
  }
}

}  // namespace
}  // namespace tessera
