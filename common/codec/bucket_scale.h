// What the header of a bucket says, and what its codes stand for: on the CPU and in GPU kernels.
#ifndef TESSERA_COMMON_CODEC_BUCKET_SCALE_H_
#define TESSERA_COMMON_CODEC_BUCKET_SCALE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace tessera {

// int8: codes are in [-127, 127].
constexpr float kLargestCode = 127.0f;
// Whose reciprocal times any number of levels is finite.
constexpr float kLargestMin = 0x1p-100f;
// Adding it leaves a number's nearest integer in the lowest bits of the sum, ties to even.
constexpr float kRounder = 0x1.8p23f;

struct BucketScale {
  float header = 0;
  float inverse = 0;  // a code is its entry times this, rounded; 0: all codes are 0
  float factor = 0;   // an entry is its code times this
};

TESSERA_HOST_DEVICE inline bool IsFiniteNumber(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return (bits & 0x7f800000u) != 0x7f800000u;
}

// Returns the scale of a bucket whose largest magnitude has the bits `largest_bits`. `nearest` is int8's rule, else
// qsgd's with `divisor` levels. `square_sum` is the sum of the entries' squares where the norm is theirs, and below 0
// where the norm is the largest magnitude.
TESSERA_HOST_DEVICE inline BucketScale BucketScaleOf(bool nearest, float divisor,
                                                     uint32_t largest_bits, double square_sum) {
  BucketScale scale;
  float largest;
  std::memcpy(&largest, &largest_bits, sizeof(largest));
  scale.header = largest;
  if (!IsFiniteNumber(largest)) {
    // Whoever checks the payload sees it.
  } else if (largest < kLargestMin) {
    scale.header = 0;
  } else if (nearest) {
    scale.header = largest / kLargestCode;
    scale.inverse = kLargestCode / largest;
  } else {
    if (square_sum >= 0) {
      // Rounded, it could fall below the only entry that is not 0, and it may not.
      const float norm = static_cast<float>(std::sqrt(square_sum));
      scale.header = largest < norm ? norm : largest;
    }
    scale.inverse = IsFiniteNumber(scale.header) ? divisor / scale.header : 0;
  }
  scale.factor = scale.header / divisor;
  return scale;
}

// A reader's view of an entry where inverse is 0.
TESSERA_HOST_DEVICE inline float UncodedEntry(const BucketScale& scale) {
  return scale.factor == 0 ? 0.0f : scale.factor;
}

// |x * inverse| < 2^22.
TESSERA_HOST_DEVICE inline int8_t NearestCode(float x, float inverse) {
  const float rounded = x * inverse + kRounder;
  uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  return static_cast<int8_t>(bits);
}

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_BUCKET_SCALE_H_
