// Whole jobs whose servers are asked to end, each by itself or several at once, and started again: of odd seeds nothing
// else happens to servers, whatever happens to workers and the network.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/sim/seeds.h"
#include "tests/sim/sim_job.h"

namespace tessera {
namespace {

constexpr SimMethod kMethods[] = {SimMethod::kDataParallel, SimMethod::kLocalSgdOverlapped,
                                  SimMethod::kAsyncSgd,     SimMethod::kSsp,
                                  SimMethod::kDilocoQuorum, SimMethod::kIst,
                                  SimMethod::kSlimDp,       SimMethod::kSlimDpAsynchronous};

SimOutcome RunAll(SimOptions options) {
  options.leaves = true;
  SimOutcome total;
  uint64_t finished = 0, runs = 0;
  const uint64_t count = SeedsOf(96);
  for (const SimMethod method : kMethods) {
    for (uint64_t i = 0; i < count; ++i) {
      options.seed = ChosenSeeds().first + i;
      options.method = method;
      const SimOutcome outcome = SimJob(options).Run();
      INFO("method " << static_cast<int>(method) << " seed " << options.seed
                     << "; replay: bazel test //tests/sim:leaving_test --test_output=all "
                     << "--test_arg=--seed=" << options.seed);
      INFO(outcome.violation.value_or(""));
      REQUIRE_FALSE(outcome.violation.has_value());
      ++runs;
      finished += outcome.finished ? 1 : 0;
      total.left += outcome.left;
      total.takeovers += outcome.takeovers;
      total.rollbacks += outcome.rollbacks;
    }
  }
  if (count < 24) return total;
  CHECK(finished * 2 > runs);
  CHECK(total.left > runs);
  return total;
}

TEST_CASE("servers with standbys leave one after another, and no shard is lost", "[sim][leave]") {
  SimOptions options;
  options.standbys = true;
  CHECK(RunAll(options).takeovers > 0);
}

TEST_CASE("so they do where the coordinator dies, too", "[sim][leave]") {
  SimOptions options;
  options.standbys = true;
  options.coordinator_dies = true;
  CHECK(RunAll(options).takeovers > 0);
}

TEST_CASE("with checkpoints nothing is done after the one that a server leaves at",
          "[sim][leave]") {
  SimOptions options;
  options.checkpoints = true;
  CHECK(RunAll(options).rollbacks > 0);
}

TEST_CASE("where standbys and checkpoints are kept, leaving and dying go together",
          "[sim][leave]") {
  SimOptions options;
  options.standbys = true;
  options.checkpoints = true;
  options.coordinator_dies = true;
  CHECK(RunAll(options).takeovers > 0);
}

}  // namespace
}  // namespace tessera
