// Which elements a dropout zeroes, for the kernels that have one.
#ifndef TESSERA_KERNELS_CPU_DROPOUT_H_
#define TESSERA_KERNELS_CPU_DROPOUT_H_

#include <cstdint>

#include "kernels/dropout_key.h"

namespace tessera {

// The numbers of a key and a layer: element e has number e % 4 of Philox block e / 4 mod 2^40. A number below `drop`
// of its 24 upper bits drops its element; what is kept is multiplied by `scale`.
struct CpuDropout {
  uint64_t seed = 0;
  uint64_t a = 0;
  uint64_t b = 0;  // of block 0
  uint32_t drop = 0;
  float scale = 1;

  // `layer` is below 2^16, the probability in [0, 1).
  static CpuDropout Of(const DropoutKey& key, uint64_t layer, double probability);

  // y = x of elements [element, element + n), some of them dropped. x may be y.
  void Apply(uint64_t element, int64_t n, const float* x, float* y) const;
  // The factors of these elements: 0 or `scale`.
  void Factors(uint64_t element, int64_t n, float* factors) const;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_DROPOUT_H_
