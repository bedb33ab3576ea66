// Whole jobs with one member more, which makes any calls in any order (sim_rogue.h): all others finish, nobody of them
// is lost, and the parameters are exact. Sequences are drawn from the seed. `--long` tries many, as a proof.
#include <catch2/catch.hpp>

#include "tests/sim/seeds.h"
#include "tests/sim/sim_job.h"

namespace tessera {
namespace {

// Those whose exchanges are of all entries: subnets and cores have pushes of their own, which workers of the other
// simulations forge.
constexpr SimMethod kMethods[] = {
    SimMethod::kDataParallel, SimMethod::kLocalSgd,        SimMethod::kLocalSgdOverlapped,
    SimMethod::kAsyncSgd,     SimMethod::kAsyncSgdDeltas,  SimMethod::kAsyncSgdInverse,
    SimMethod::kSoftsync,     SimMethod::kSoftsyncInverse, SimMethod::kSsp,
    SimMethod::kDiloco,       SimMethod::kDilocoQuorum,    SimMethod::kDilocoAsynchronous};

TEST_CASE("a member that makes any calls in any order costs itself only", "[sim][rogue]") {
  const uint64_t count = SeedsOf(400);
  uint64_t runs = 0, took_part = 0, taken = 0, judged = 0;
  for (const SimMethod method : kMethods) {
    for (uint64_t i = 0; i < count; ++i) {
      SimOptions options;
      options.seed = ChosenSeeds().first + i;
      options.method = method;
      options.faults = false;  // Whatever happens is the rogue's doing.
      options.plain = true;
      options.rogue_calls = 10 + static_cast<int>(options.seed % 8) * 10;
      const SimOutcome outcome = SimJob(options).Run();
      INFO("method " << static_cast<int>(method) << " seed " << options.seed
                     << "; replay: bazel test //tests/sim:rogue_test --test_output=all "
                     << "--test_arg=--seed=" << options.seed);
      INFO(outcome.violation.value_or(""));
      REQUIRE_FALSE(outcome.violation.has_value());
      CHECK(outcome.finished);
      CHECK(outcome.lost == 0);
      ++runs;
      judged += outcome.judged ? 1 : 0;
      took_part += outcome.rogue_calls > 0 ? 1 : 0;
      taken += outcome.rogue_pushes > 0 ? 1 : 0;
    }
  }
  CHECK(judged == runs);
  if (count < 24) return;
  // A simulation whose rogue never gets in, or whose pushes are all refused, would prove nothing.
  CHECK(took_part * 2 > runs);
  CHECK(taken * 4 > runs);
}

}  // namespace
}  // namespace tessera
