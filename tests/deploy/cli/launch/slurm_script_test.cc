#include "deploy/cli/launch/slurm_script.h"

#include <stdio.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

v1::Job JobOf(int servers, int workers) {
  v1::Job job;
  job.set_name("my job");
  job.mutable_cluster()->mutable_servers()->set_count(servers);
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_threads(2);
  return job;
}

SlurmOptions Options() {
  SlurmOptions options;
  options.programs = "/opt/tessera";
  options.job_path = "/jobs/it's.yaml";
  options.overrides = {"name=a b"};
  options.log_directory = "/logs";
  options.sbatch = {"--partition=gpu"};
  return options;
}

TEST_CASE("a batch script asks for nodes, and goes on where one is lost", "[cli][slurm]") {
  const auto script = SlurmScript(JobOf(2, 4), Recipe(), Options());
  REQUIRE(script.ok());
  for (const char* line :
       {"#SBATCH --job-name=my_job\n", "#SBATCH --nodes=4\n", "#SBATCH --ntasks-per-node=1\n",
        "#SBATCH --cpus-per-task=2\n", "#SBATCH --no-kill\n", "#SBATCH --signal=B:TERM@60\n",
        "#SBATCH --output=/logs/slurm-%j.out\n", "#SBATCH --partition=gpu\n",
        "job=(--job '/jobs/it'\\''s.yaml' --set 'name=a b' --set"}) {
    CHECK(absl::StrContains(*script, line));
  }
  CHECK_FALSE(absl::StrContains(*script, "@PORT"));
  SlurmOptions two = Options();
  two.nodes = 2;
  CHECK(absl::StrContains(*SlurmScript(JobOf(2, 4), Recipe(), two),
                          "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n"));
}

TEST_CASE("a batch script is one that bash can read", "[cli][slurm]") {
  const auto script = SlurmScript(JobOf(2, 3), Recipe(), Options());
  const std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/job.sh");
  std::ofstream(path) << *script;
  CHECK(system(("bash -n " + ShellWord(path)).c_str()) == 0);
}

TEST_CASE("a job that lists its servers is none for Slurm", "[cli][slurm]") {
  v1::Job job = JobOf(1, 1);
  job.mutable_cluster()->mutable_servers()->add_addresses("a:7000");
  CHECK(SlurmScript(job, Recipe(), Options()).status().message() ==
        "cluster.servers: got 1 addresses, want a number: Slurm chooses the nodes; --set "
        "cluster.servers=1");
}

}  // namespace
}  // namespace tessera
