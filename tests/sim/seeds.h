// Which seeds a run of the simulation tries.
#ifndef TESSERA_TESTS_SIM_SEEDS_H_
#define TESSERA_TESTS_SIM_SEEDS_H_

#include <cstdint>

namespace tessera {

struct Seeds {
  uint64_t first = 1;
  uint64_t count = 300;
};

// Set by main from --seed (that one only), --seeds (so many) and --first.
Seeds& ChosenSeeds();

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SEEDS_H_
