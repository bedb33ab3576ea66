// Which seeds a run of the simulation tries.
#ifndef TESSERA_TESTS_SIM_SEEDS_H_
#define TESSERA_TESTS_SIM_SEEDS_H_

#include <cstdint>

namespace tessera {

struct Seeds {
  uint64_t first = 1;
  uint64_t count = 75;
  bool chosen = false;  // By --seed or --seeds: each kind of jobs has so many.
};

// Set by main from --seed (that one only), --seeds (so many), --long (four times the usual ones) and --first.
Seeds& ChosenSeeds();

// How many seeds are tried of a kind of jobs of which --long tries `long_count`: a quarter of them where no flag says
// otherwise.
uint64_t SeedsOf(uint64_t long_count);

// For jobs that take milliseconds each: as many as --long tries where no flag says otherwise.
uint64_t CheapSeeds(uint64_t count);

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SEEDS_H_
