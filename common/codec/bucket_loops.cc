#include "common/codec/bucket_loops.h"

#include <algorithm>
#include <cstring>

#ifdef TESSERA_CODEC_X86
#include <immintrin.h>
#endif

// Inlined into functions that are compiled for one instruction set each, and vectorised there.
#define TESSERA_LOOP inline __attribute__((always_inline))
// Three functions around one loop.
#define TESSERA_PATHS(result, name, parameters, arguments)                         \
  result name##Scalar parameters { return name##Loop arguments; }                  \
  TESSERA_CODEC_AVX2 result name##Avx2 parameters { return name##Loop arguments; } \
  TESSERA_CODEC_AVX512 result name##Avx512 parameters { return name##Loop arguments; }

namespace tessera {
namespace {

// Partial sums that do not depend on the width of a register.
// Sixteen f64 fill two registers of AVX-512 or four of AVX2, and are added up in the same order everywhere.
constexpr int kLanes = 16;

TESSERA_LOOP uint64_t LoadEight(const void* data) {
  uint64_t value;
  __builtin_memcpy(&value, data, sizeof(value));
  return value;
}

template <bool kAdds>
TESSERA_LOOP void CodeLoop(const char* __restrict in, int64_t count, float factor, float weight,
                           float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = weight * (static_cast<float>(static_cast<int8_t>(in[i])) * factor);
    sum[i] = kAdds ? sum[i] + x : x;
  }
}
TESSERA_LOOP void AssignLoop(const char* in, int64_t n, float factor, float w, float* sum) {
  CodeLoop<false>(in, n, factor, w, sum);
}
TESSERA_LOOP void AddLoop(const char* in, int64_t n, float factor, float w, float* sum) {
  CodeLoop<true>(in, n, factor, w, sum);
}
TESSERA_PATHS(void, Assign, (const char* in, int64_t n, float factor, float w, float* sum),
              (in, n, factor, w, sum))
TESSERA_PATHS(void, Add, (const char* in, int64_t n, float factor, float w, float* sum),
              (in, n, factor, w, sum))

TESSERA_LOOP void NearestLoop(const float* __restrict in, int64_t count, float inverse,
                              char* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<char>(NearestCode(in[i], inverse));
  }
}
TESSERA_PATHS(void, Nearest, (const float* in, int64_t count, float inverse, char* out),
              (in, count, inverse, out))

// Magnitudes are compared as integers: without the sign, f32 bits ascend with the value, and NaNs are the largest.
TESSERA_LOOP uint32_t LargestLoop(const float* in, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, in + i, 4);
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}
TESSERA_PATHS(uint32_t, Largest, (const float* in, int64_t count), (in, count))

TESSERA_LOOP double SquareSumLoop(const float* in, int64_t count) {
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const double x = in[i + k];
      sums[k] += x * x;
    }
  }
  // The rest goes to the first lanes, in every path alike.
  for (int k = 0; i + k < count; ++k) {
    const double x = in[i + k];
    sums[k] += x * x;
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}
TESSERA_PATHS(double, SquareSum, (const float* in, int64_t count), (in, count))

// Eight codes of b bits are b bytes.
constexpr int kPackCount = 8;

// The lowest `bits` bits of each of eight bytes.
TESSERA_LOOP uint64_t LowBits(int bits) { return 0x0101010101010101u * ((1u << bits) - 1); }

// Moves the lowest `bits` bits of eight bytes together, the first byte's lowest.
TESSERA_LOOP uint64_t Squeeze(uint64_t codes, int bits) {
  uint64_t packed = 0;
  for (int i = 0; i < kPackCount; ++i) {
    packed |= (codes >> 8 * i & ((1u << bits) - 1)) << bits * i;
  }
  return packed;
}

// Undoes Squeeze: gives each code a byte of its own, without its sign.
TESSERA_LOOP uint64_t Spread(uint64_t packed, int bits) {
  uint64_t codes = 0;
  for (int i = 0; i < kPackCount; ++i) {
    codes |= (packed >> bits * i & ((1u << bits) - 1)) << 8 * i;
  }
  return codes;
}

template <typename SqueezeEight>
TESSERA_LOOP void PackLoop(const int8_t* codes, int64_t count, int bits, char* out,
                           SqueezeEight squeeze) {
  for (; count >= kPackCount; count -= kPackCount, codes += kPackCount, out += bits) {
    const uint64_t packed = squeeze(LoadEight(codes), bits);
    std::memcpy(out, &packed, bits);
  }
  // The last group is shorter and takes as many bytes as its codes fill.
  if (count == 0) return;
  uint64_t last = 0;
  std::memcpy(&last, codes, count);
  const uint64_t packed = squeeze(last, bits);
  std::memcpy(out, &packed, (count * bits + 7) / 8);
}

template <typename SpreadEight>
TESSERA_LOOP void UnpackLoop(const char* in, int64_t count, int bits, int8_t* codes,
                             SpreadEight spread) {
  // A code's highest bit is its sign: flipping it and taking its worth away extends it.
  const uint64_t signs = 0x0101010101010101u << (bits - 1);
  while (count > 0) {
    const int64_t taken = std::min<int64_t>(count, kPackCount);
    uint64_t packed = 0;
    std::memcpy(&packed, in, taken == kPackCount ? bits : (taken * bits + 7) / 8);
    const uint64_t flipped = spread(packed, bits) ^ signs;
    // Byte by byte, flipped - signs: the highest bit of each byte stops the borrow.
    const uint64_t top = 0x8080808080808080u;
    const uint64_t extended = ((flipped | top) - signs) ^ top;
    std::memcpy(codes, &extended, taken);
    in += bits;
    codes += taken;
    count -= taken;
  }
}

void PackScalar(const int8_t* codes, int64_t count, int bits, char* out) {
  PackLoop(codes, count, bits, out, [](uint64_t x, int b) { return Squeeze(x, b); });
}
void UnpackScalar(const char* in, int64_t count, int bits, int8_t* codes) {
  UnpackLoop(in, count, bits, codes, [](uint64_t x, int b) { return Spread(x, b); });
}

#ifdef TESSERA_CODEC_X86

// The byte-wise deposit and extract instructions do eight codes at once.
TESSERA_CODEC_AVX2 void PackBmi2(const int8_t* codes, int64_t count, int bits, char* out) {
  const uint64_t mask = LowBits(bits);
  // Eight bytes are stored, and the next group overwrites those that are too many. The last groups, with less than
  // eight bytes of room, are left to the scalar loop.
  for (; count * bits >= 64; count -= kPackCount, codes += kPackCount, out += bits) {
    const uint64_t packed = _pext_u64(LoadEight(codes), mask);
    std::memcpy(out, &packed, sizeof(packed));
  }
  PackScalar(codes, count, bits, out);
}
TESSERA_CODEC_AVX2 void UnpackBmi2(const char* in, int64_t count, int bits, int8_t* codes) {
  const uint64_t mask = LowBits(bits);
  const uint64_t signs = 0x0101010101010101u << (bits - 1);
  const uint64_t top = 0x8080808080808080u;
  for (; count * bits >= 64; count -= kPackCount, codes += kPackCount, in += bits) {
    const uint64_t flipped = _pdep_u64(LoadEight(in), mask) ^ signs;
    const uint64_t extended = ((flipped | top) - signs) ^ top;
    std::memcpy(codes, &extended, kPackCount);
  }
  UnpackScalar(in, count, bits, codes);
}

#endif

constexpr BucketLoops kLoops[kCodecPaths] = {
    {NearestScalar, LargestScalar, SquareSumScalar, RoundAtRandomScalar, PackScalar, UnpackScalar},
#ifdef TESSERA_CODEC_X86
    {NearestAvx2, LargestAvx2, SquareSumAvx2, RoundAtRandomAvx2, PackBmi2, UnpackBmi2},
    {NearestAvx512, LargestAvx512, SquareSumAvx512, RoundAtRandomAvx512, PackBmi2, UnpackBmi2},
#endif
};

}  // namespace

const EntryLoops kCodeLoops[kCodecPaths] = {{AssignScalar, AddScalar, nullptr, nullptr},
                                            {AssignAvx2, AddAvx2, nullptr, nullptr},
                                            {AssignAvx512, AddAvx512, nullptr, nullptr}};

const BucketLoops& BucketLoopsOf(CodecPath path) { return kLoops[static_cast<int>(path)]; }

}  // namespace tessera
