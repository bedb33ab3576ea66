// The weight lambda(tau) of a push that is tau versions late.
//
//   constant     scale
//   inverse      scale / max(1, tau)
//   power        scale / max(1, tau)^exponent
//   exponential  scale * base^tau
//
// Zhang, Gupta, Lian, Liu: Staleness-aware Async-SGD for distributed deep learning, IJCAI 2016.
#ifndef TESSERA_COMMON_CONSISTENCY_STALENESS_WEIGHT_H_
#define TESSERA_COMMON_CONSISTENCY_STALENESS_WEIGHT_H_

#include <cstdint>

namespace tessera {

struct StalenessWeight {
  enum class Kind { kConstant, kInverse, kPower, kExponential };
  Kind kind = Kind::kConstant;
  float scale = 1;
  // The exponent of kPower, or the base of kExponential.
  float shape = 1;

  float operator()(uint64_t tau) const;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_STALENESS_WEIGHT_H_
