#include "bench/slim/plain_reads.h"

#include "common/base/vector_clones.h"

namespace tessera {

TESSERA_VECTOR_CLONES
uint64_t ReadAll(const float* x, int64_t count) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, 4);
    sum += bits;
  }
  return sum;
}

}  // namespace tessera
