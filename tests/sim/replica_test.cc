// Jobs without central servers, hundreds of them, on virtual time.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/sim/replica_job.h"
#include "tests/sim/seeds.h"

namespace tessera {
namespace {

constexpr uint64_t kJobs = 300;

ReplicaJobOutcome RunAll(bool faults) {
  ReplicaJobOutcome total;
  uint64_t finished = 0;
  const Seeds seeds{ChosenSeeds().first, CheapSeeds(kJobs)};
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const ReplicaJobOutcome outcome = ReplicaJob({seed, faults}).Run();
    INFO("seed=" << seed << "; replay: bazel test //tests/sim:replica_test --test_output=all "
                 << "--test_arg=--seed=" << seed);
    INFO(outcome.violation.value_or(""));
    REQUIRE_FALSE(outcome.violation.has_value());
    finished += outcome.finished ? 1 : 0;
    total.pairs += outcome.pairs;
    total.pushes += outcome.pushes;
    total.lost += outcome.lost;
    total.servers_lost += outcome.servers_lost;
    total.servers_joined += outcome.servers_joined;
    total.partial_pushes += outcome.partial_pushes;
  }
  // The others lose all their workers, or the server with the coordinator.
  total.finished = finished * 100 > seeds.count * 65;
  std::cout << "finished " << finished << " pairs " << total.pairs << std::endl;
  return total;
}

TEST_CASE("sites come and go, and the replicas that are left have the same pushes in them",
          "[sim][replica]") {
  const ReplicaJobOutcome total = RunAll(/*faults=*/true);
  if (CheapSeeds(kJobs) < 100) return;
  // A simulation without trouble proves nothing.
  CHECK(total.finished);
  CHECK(total.pairs > CheapSeeds(kJobs));
  CHECK(total.lost > CheapSeeds(kJobs) / 2);
  CHECK(total.servers_lost > CheapSeeds(kJobs) / 2);
  CHECK(total.servers_joined > CheapSeeds(kJobs) / 4);
  CHECK(total.partial_pushes > 0);
}

TEST_CASE("without faults all replicas are equal at the end", "[sim][replica]") {
  const ReplicaJobOutcome total = RunAll(/*faults=*/false);
  CHECK(total.finished);
  CHECK(total.pairs > CheapSeeds(kJobs) / 2);
  CHECK(total.pushes > 0);
  CHECK(total.lost == 0);
  CHECK(total.partial_pushes == 0);
}

TEST_CASE("a joining server that skips a step is found out", "[sim][replica][mutation]") {
  const std::pair<ReplicaMutation, const char*> all[] = {
      {ReplicaMutation::kForgetsTable, "twice"},
      {ReplicaMutation::kKeepsNothing, "values are not those"},
  };
  for (const auto& [mutation, words] : all) {
    std::string seen;
    for (uint64_t seed = 1; seed <= 100 && seen.find(words) == std::string::npos; ++seed) {
      seen = ReplicaJob({seed, true, mutation}).Run().violation.value_or(seen);
    }
    INFO("mutation " << static_cast<int>(mutation) << ", last objection: " << seen);
    CHECK(seen.find(words) != std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
