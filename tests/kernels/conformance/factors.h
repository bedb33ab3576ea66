// Factors of products, in the types that products take.
#ifndef TESSERA_TESTS_KERNELS_CONFORMANCE_FACTORS_H_
#define TESSERA_TESTS_KERNELS_CONFORMANCE_FACTORS_H_

#include <type_traits>
#include <vector>

#include "kernels/bf16.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {

template <typename T>
std::vector<T> Factor(int64_t n, unsigned seed) {
  const std::vector<float> values = RandomValues(n, seed);
  std::vector<T> factor(n);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      factor[i] = values[i];
    } else {
      factor[i] = RoundToBf16(values[i]);
    }
  }
  return factor;
}

inline double Value(float x) { return x; }
inline double Value(Bf16 x) { return Widen(x); }

}  // namespace tessera

#endif  // TESSERA_TESTS_KERNELS_CONFORMANCE_FACTORS_H_
