// Catch2's main with three flags more:  --seed N  replays one run,  --seeds N  tries N of them, from 1 on or from
// --first N  on.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "common/base/log.h"
#include "tests/sim/seeds.h"

namespace tessera {

Seeds& ChosenSeeds() {
  static Seeds seeds;
  return seeds;
}

}  // namespace tessera

int main(int argc, char** argv) {
  tessera::SetLogLevel(tessera::LogLevel::kError);
  Catch::Session session;
  uint64_t seed = 0;
  uint64_t first = tessera::ChosenSeeds().first;
  uint64_t count = tessera::ChosenSeeds().count;
  using Catch::clara::Opt;
  session.cli(session.cli() | Opt(seed, "N")["--seed"]("replay the run of this seed") |
              Opt(count, "N")["--seeds"]("how many seeds to try") |
              Opt(first, "N")["--first"]("the first of them"));
  const int parsed = session.applyCommandLine(argc, argv);
  if (parsed != 0) return parsed;
  if (seed != 0) {
    tessera::SetLogLevel(tessera::LogLevel::kInfo);
    tessera::ChosenSeeds() = {seed, 1};
  } else {
    tessera::ChosenSeeds() = {first, count};
  }
  return session.run();
}
