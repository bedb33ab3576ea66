// All chance of one simulated run, from one seed.
#ifndef TESSERA_TESTS_SIM_DICE_H_
#define TESSERA_TESTS_SIM_DICE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tessera {

// SplitMix64's finisher: a number that looks random, for each number.
inline uint64_t Scrambled(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(Scrambled(seed)) {}

  uint64_t Next() { return Scrambled(state_ += 0x9e3779b97f4a7c15u); }
  // In [0, end).
  uint64_t Below(uint64_t end) { return Next() % end; }
  bool Chance(double probability) {
    return static_cast<double>(Next() >> 11) * 0x1p-53 < probability;
  }
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    return least + (most - least) * (static_cast<double>(Next() >> 11) * 0x1p-53);
  }

 private:
  uint64_t state_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_DICE_H_
