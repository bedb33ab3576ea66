// Normally distributed numbers out of random bits, the same to the last bit on every machine.
#ifndef TESSERA_COMMON_LAYOUT_NORMAL_H_
#define TESSERA_COMMON_LAYOUT_NORMAL_H_

#include <cstdint>

namespace tessera {

// The quantile of the standard normal distribution at (bits + 1/2) / 2^32, to a relative error of 1e-8 (Acklam's
// rational approximation, 2003). Between -6.4 and 6.4.
float NormalOf(uint32_t bits);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_NORMAL_H_
