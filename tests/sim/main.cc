// Catch2's main with four flags more:  --seed N  replays one run,  --seeds N  tries N of each kind of jobs,  --long
// tries four times as many as are usual, from 1 on or from  --first N  on.
#define CATCH_CONFIG_RUNNER
#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>

#include "common/base/log.h"
#include "tests/sim/seeds.h"

namespace tessera {

Seeds& ChosenSeeds() {
  static Seeds seeds;
  return seeds;
}

constexpr uint64_t kLongCount = 300;

uint64_t SeedsOf(uint64_t long_count) {
  if (ChosenSeeds().chosen) return ChosenSeeds().count;
  return std::max<uint64_t>(1, long_count * ChosenSeeds().count / kLongCount);
}

uint64_t CheapSeeds(uint64_t count) { return ChosenSeeds().chosen ? ChosenSeeds().count : count; }

}  // namespace tessera

int main(int argc, char** argv) {
  tessera::SetLogLevel(tessera::LogLevel::kError);
  Catch::Session session;
  uint64_t seed = 0;
  uint64_t first = tessera::ChosenSeeds().first;
  std::optional<uint64_t> count;
  bool is_long = false;
  using Catch::clara::Opt;
  session.cli(session.cli() | Opt(seed, "N")["--seed"]("replay the run of this seed") |
              Opt([&](uint64_t n) { count = n; }, "N")["--seeds"]("how many seeds to try") |
              Opt(is_long)["--long"]("try four times as many seeds as are usual") |
              Opt(first, "N")["--first"]("the first of them"));
  const int parsed = session.applyCommandLine(argc, argv);
  if (parsed != 0) return parsed;
  if (seed != 0) {
    tessera::SetLogLevel(tessera::LogLevel::kInfo);
    tessera::ChosenSeeds() = {seed, 1, true};
  } else if (count.has_value()) {
    tessera::ChosenSeeds() = {first, *count, true};
  } else {
    const uint64_t usual = tessera::Seeds().count;
    tessera::ChosenSeeds() = {first, is_long ? tessera::kLongCount : usual, false};
  }
  return session.run();
}
