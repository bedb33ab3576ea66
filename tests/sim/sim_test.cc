// Whole jobs under faults, hundreds of them, on virtual time.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_job.h"

namespace tessera {
namespace {

std::string NameOf(SimMethod method) {
  switch (method) {
    case SimMethod::kDataParallel:
      return "data_parallel";
    case SimMethod::kLocalSgd:
      return "local_sgd";
    case SimMethod::kAsyncSgd:
      return "async_sgd";
    case SimMethod::kAsyncSgdDeltas:
      return "async_sgd deltas";
    case SimMethod::kAsyncSgdInverse:
      return "async_sgd inverse";
    case SimMethod::kSoftsync:
      return "softsync";
    case SimMethod::kSoftsyncInverse:
      return "softsync inverse";
    case SimMethod::kSsp:
      return "ssp";
    case SimMethod::kDiloco:
      return "diloco";
    case SimMethod::kDilocoQuorum:
      return "diloco quorum";
    case SimMethod::kDilocoAsynchronous:
      return "diloco asynchronous";
    case SimMethod::kIst:
      return "ist";
    case SimMethod::kSlimDp:
      return "slim_dp";
    case SimMethod::kSlimDpAsynchronous:
      return "slim_dp asynchronous";
  }
  return "";
}

constexpr SimMethod kMethods[] = {SimMethod::kDataParallel,
                                  SimMethod::kLocalSgd,
                                  SimMethod::kAsyncSgd,
                                  SimMethod::kAsyncSgdDeltas,
                                  SimMethod::kAsyncSgdInverse,
                                  SimMethod::kSoftsync,
                                  SimMethod::kSoftsyncInverse,
                                  SimMethod::kSsp,
                                  SimMethod::kDiloco,
                                  SimMethod::kDilocoQuorum,
                                  SimMethod::kDilocoAsynchronous,
                                  SimMethod::kIst,
                                  SimMethod::kSlimDp,
                                  SimMethod::kSlimDpAsynchronous};

// What to type to see this run again, with its log.
std::string Replay(uint64_t seed) {
  return absl::StrCat(
      "seed=", seed,
      "; replay: bazel test //tests/sim:sim_test --test_output=all --test_arg=--seed=", seed);
}

// Every seed of one method; the totals show that the faults were there.
SimOutcome RunAll(SimMethod method, bool faults) {
  SimOutcome total;
  const Seeds seeds = ChosenSeeds();
  uint64_t finished = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const SimOutcome outcome = SimJob({seed, method, Mutation::kNone, faults}).Run();
    INFO(NameOf(method) << ": " << Replay(seed));
    INFO(outcome.violation.value_or(""));
    REQUIRE_FALSE(outcome.violation.has_value());
    finished += outcome.finished ? 1 : 0;
    total.commits += outcome.commits;
    total.lost += outcome.lost;
    total.joined_late += outcome.joined_late;
    total.partial_pushes += outcome.partial_pushes;
  }
  total.finished = finished * 2 > seeds.count;
  return total;
}

TEST_CASE("whatever the network does, updates count once and every job ends", "[sim]") {
  for (const SimMethod method : kMethods) {
    DYNAMIC_SECTION(NameOf(method)) {
      const SimOutcome total = RunAll(method, /*faults=*/true);
      if (ChosenSeeds().count < 100) continue;
      // A simulation without trouble proves nothing.
      CHECK(total.finished);
      CHECK(total.lost > ChosenSeeds().count / 2);
      CHECK(total.joined_late > ChosenSeeds().count / 4);
      CHECK(total.partial_pushes > 0);
    }
  }
}

// Seeds that once found a bug, and what it was. What a seed does changes with the simulator; each is kept
// for as long as it is cheap.
struct FoundBug {
  uint64_t seed;
  SimMethod method;
  const char* bug;
};

constexpr FoundBug kFoundBugs[] = {
    {31959, SimMethod::kLocalSgd, "a barrier skipped an exchange that was promised to a joiner"},
    {5102, SimMethod::kAsyncSgd, "a server cut off while the job closed was not awaited"},
    {70, SimMethod::kSlimDpAsynchronous, "a core's selection weighed values that had moved on"},
};

TEST_CASE("seeds that found a bug pass", "[sim]") {
  for (const FoundBug& found : kFoundBugs) {
    const SimOutcome outcome = SimJob({found.seed, found.method, Mutation::kNone, true}).Run();
    INFO(NameOf(found.method) << ": " << found.bug << "; " << Replay(found.seed));
    INFO(outcome.violation.value_or(""));
    CHECK_FALSE(outcome.violation.has_value());
  }
}

TEST_CASE("without faults every job finishes and loses nobody", "[sim]") {
  for (const SimMethod method : kMethods) {
    const SimOutcome total = RunAll(method, /*faults=*/false);
    CHECK(total.finished);
    CHECK(total.lost == 0);
    CHECK(total.partial_pushes == 0);
  }
}

TEST_CASE("the same seed gives the same run", "[sim]") {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimOutcome first = SimJob({seed, SimMethod::kDataParallel}).Run();
    const SimOutcome second = SimJob({seed, SimMethod::kDataParallel}).Run();
    CHECK(first.fingerprint == second.fingerprint);
    CHECK(first.fingerprint != SimJob({seed + 100, SimMethod::kDataParallel}).Run().fingerprint);
  }
}

struct Broken {
  Mutation mutation;
  SimMethod method;
  const char* words;
};

TEST_CASE("the checker objects to every mutation", "[sim][mutation]") {
  const std::vector<Broken> all = {
      {Mutation::kAppliesDuplicates, SimMethod::kAsyncSgd, "by the updates folded"},
      {Mutation::kCountsTwice, SimMethod::kDataParallel, "by the updates folded"},
      {Mutation::kCountsTwice, SimMethod::kAsyncSgdDeltas, "by the updates folded"},
      {Mutation::kPolicyForgetsRemoval, SimMethod::kDataParallel, "waits for"},
      {Mutation::kServerForgetsRemoval, SimMethod::kAsyncSgd, "removed member"},
      {Mutation::kServerForgetsRemoval, SimMethod::kLocalSgd, ""},
      {Mutation::kReadsEarly, SimMethod::kDataParallel, "contains exchange"},
      {Mutation::kForgetsPromise, SimMethod::kDataParallel, ""},
      {Mutation::kLosesStaged, SimMethod::kDataParallel, "stuck"},
      {Mutation::kLosesStaged, SimMethod::kAsyncSgd, ""},
      {Mutation::kReadsEarly, SimMethod::kSsp, "its gap to member"},
      {Mutation::kReadsEarly, SimMethod::kDilocoQuorum, " is open"},
      {Mutation::kForgetsRests, SimMethod::kSsp, ""},
      {Mutation::kForgetsRests, SimMethod::kDilocoQuorum, ""},
      {Mutation::kWeighsAlike, SimMethod::kSoftsyncInverse, "by the updates folded"},
      {Mutation::kPolicyForgetsRemoval, SimMethod::kSsp, "waits for"},
      {Mutation::kPolicyForgetsRemoval, SimMethod::kDilocoQuorum, "waits for"},
      {Mutation::kForgetsFormerSites, SimMethod::kIst, "cut in two ways"},
      {Mutation::kForgetsPromise, SimMethod::kIst, ""},
      {Mutation::kServerForgetsRemoval, SimMethod::kIst, ""},
      {Mutation::kCountsTwice, SimMethod::kIst, "by the updates folded"},
      {Mutation::kLosesStaged, SimMethod::kIst, "stuck"},
      {Mutation::kCountsTwice, SimMethod::kSlimDp, "by the updates folded"},
      {Mutation::kForgetsPromise, SimMethod::kSlimDp, ""},
      {Mutation::kTakesAllTies, SimMethod::kSlimDp, "not the entries of the largest significance"},
      {Mutation::kTakesAllTies, SimMethod::kSlimDpAsynchronous, "not the entries of the largest"},
      {Mutation::kSaysReportsOnce, SimMethod::kSlimDp, "stuck"},
      {Mutation::kReadsEarly, SimMethod::kSlimDp, "contains exchange"},
      {Mutation::kAppliesDuplicates, SimMethod::kSlimDpAsynchronous, ""},
  };
  for (const Broken& broken : all) {
    std::string seen;
    bool objected = false;
    for (uint64_t seed = 1; seed <= 60 && !objected; ++seed) {
      const SimOutcome outcome = SimJob({seed, broken.method, broken.mutation}).Run();
      if (!outcome.violation.has_value()) continue;
      seen = *outcome.violation;
      objected = seen.find(broken.words) != std::string::npos;
    }
    INFO(NameOf(broken.method) << " with mutation " << static_cast<int>(broken.mutation)
                               << ", wanted \"" << broken.words << "\", last objection: " << seen);
    CHECK(objected);
    UNSCOPED_INFO(seen);
  }
}

}  // namespace
}  // namespace tessera
