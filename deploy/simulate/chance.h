// The simulator's random numbers: pure functions of the job's seed, so that a simulation can be
// repeated.
#ifndef TESSERA_DEPLOY_SIMULATE_CHANCE_H_
#define TESSERA_DEPLOY_SIMULATE_CHANCE_H_

#include <cmath>
#include <cstdint>

#include "common/base/philox.h"

namespace tessera {

// Streams of Philox that nothing in a real job uses. a = worker, b as below.
constexpr Stream kChanceSpeed = static_cast<Stream>(0x80);    // b = 0
constexpr Stream kChanceJitter = static_cast<Stream>(0x81);   // b = step
constexpr Stream kChanceFailure = static_cast<Stream>(0x82);  // b = incarnation, from 0

// A number in [0, 1), a multiple of 2^-53.
inline double UniformChance(uint64_t seed, Stream stream, uint64_t worker, uint64_t b) {
  const PhiloxBlock block = Philox(seed, stream, worker, b);
  return static_cast<double>((uint64_t{block[1]} << 32 | block[0]) >> 11) * 0x1p-53;
}

// An exponential number with mean 1.
inline double ExponentialChance(uint64_t seed, Stream stream, uint64_t worker, uint64_t b) {
  return -std::log1p(-UniformChance(seed, stream, worker, b));
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_CHANCE_H_
