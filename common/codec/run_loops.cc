#include "common/codec/run_loops.h"

#include <algorithm>
#include <cstring>

#include "common/codec/bucket_scale.h"
#include "common/codec/half.h"

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
#define TESSERA_DECODE_PATHS(name)                                                       \
  TESSERA_PATHS(void, name,                                                              \
                (const char* in, int64_t count, float factor, float weight, float* sum), \
                (in, count, factor, weight, sum))
#define TESSERA_ENCODE_PATHS(name)                                                      \
  TESSERA_PATHS(void, name, (const float* in, int64_t count, float inverse, char* out), \
                (in, count, inverse, out))
#define TESSERA_CHECK_PATHS(name) \
  TESSERA_PATHS(bool, name, (const char* in, int64_t count), (in, count))

namespace tessera {
namespace {

// Partial sums that do not depend on the width of a register.
constexpr int kLanes = 16;

template <typename T>
TESSERA_LOOP T Load(const char* data) {
  T value;
  __builtin_memcpy(&value, data, sizeof(value));
  return value;
}

TESSERA_LOOP void Put(bool adds, float value, float* sum) { *sum = adds ? *sum + value : value; }

template <bool kAdds>
TESSERA_LOOP void F32Loop(const char* __restrict in, int64_t count, float weight,
                          float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) Put(kAdds, weight * Load<float>(in + 4 * i), sum + i);
}

template <bool kAdds>
TESSERA_LOOP void Bf16Loop(const char* __restrict in, int64_t count, float weight,
                           float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) {
    Put(kAdds, weight * FromBf16(Load<uint16_t>(in + 2 * i)), sum + i);
  }
}

template <bool kAdds>
TESSERA_LOOP void F16Loop(const char* __restrict in, int64_t count, float weight,
                          float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) {
    Put(kAdds, weight * FromF16(Load<uint16_t>(in + 2 * i)), sum + i);
  }
}

template <bool kAdds>
TESSERA_LOOP void CodeLoop(const char* __restrict in, int64_t count, float factor, float weight,
                           float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = static_cast<float>(static_cast<int8_t>(in[i])) * factor;
    Put(kAdds, weight * x, sum + i);
  }
}

#define TESSERA_ASSIGN_AND_ADD(form)                                                            \
  TESSERA_LOOP void Assign##form##Loop(const char* in, int64_t n, float, float w, float* sum) { \
    form##Loop<false>(in, n, w, sum);                                                           \
  }                                                                                             \
  TESSERA_LOOP void Add##form##Loop(const char* in, int64_t n, float, float w, float* sum) {    \
    form##Loop<true>(in, n, w, sum);                                                            \
  }
TESSERA_ASSIGN_AND_ADD(F32)
TESSERA_ASSIGN_AND_ADD(Bf16)
TESSERA_ASSIGN_AND_ADD(F16)
TESSERA_LOOP void AssignCodeLoop(const char* in, int64_t n, float factor, float w, float* sum) {
  CodeLoop<false>(in, n, factor, w, sum);
}
TESSERA_LOOP void AddCodeLoop(const char* in, int64_t n, float factor, float w, float* sum) {
  CodeLoop<true>(in, n, factor, w, sum);
}
TESSERA_DECODE_PATHS(AssignF32)
TESSERA_DECODE_PATHS(AddF32)
TESSERA_DECODE_PATHS(AssignBf16)
TESSERA_DECODE_PATHS(AddBf16)
TESSERA_DECODE_PATHS(AssignCode)
TESSERA_DECODE_PATHS(AddCode)

TESSERA_LOOP void EncodeF32Loop(const float* in, int64_t count, float, char* out) {
  if (count > 0) std::memcpy(out, in, count * sizeof(float));
}

TESSERA_LOOP void EncodeBf16Loop(const float* __restrict in, int64_t count, float,
                                 char* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t half = ToBf16(in[i]);
    __builtin_memcpy(out + 2 * i, &half, 2);
  }
}

TESSERA_LOOP void EncodeF16Loop(const float* __restrict in, int64_t count, float,
                                char* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t half = ToF16(in[i]);
    __builtin_memcpy(out + 2 * i, &half, 2);
  }
}

TESSERA_LOOP void EncodeCodeLoop(const float* __restrict in, int64_t count, float inverse,
                                 char* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<char>(NearestCode(in[i], inverse));
  }
}
TESSERA_ENCODE_PATHS(EncodeF32)
TESSERA_ENCODE_PATHS(EncodeBf16)
TESSERA_ENCODE_PATHS(EncodeCode)

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
  for (int k = 0; i + k < count; ++k) {
    const double x = in[i + k];
    sums[k] += x * x;
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}
TESSERA_PATHS(double, SquareSum, (const float* in, int64_t count), (in, count))

template <typename T, T kExponent>
TESSERA_LOOP bool AnyLoop(const char* in, int64_t count) {
  T any = 0;
  for (int64_t i = 0; i < count; ++i) {
    const T exponent = Load<T>(in + sizeof(T) * i) & kExponent;
    any |= static_cast<T>(exponent == kExponent);
  }
  return any != 0;
}
TESSERA_LOOP bool AnyF32Loop(const char* in, int64_t n) {
  return AnyLoop<uint32_t, 0x7f800000u>(in, n);
}
TESSERA_LOOP bool AnyBf16Loop(const char* in, int64_t n) {
  return AnyLoop<uint16_t, 0x7f80u>(in, n);
}
TESSERA_LOOP bool AnyF16Loop(const char* in, int64_t n) {
  return AnyLoop<uint16_t, 0x7c00u>(in, n);
}
TESSERA_CHECK_PATHS(AnyF32)
TESSERA_CHECK_PATHS(AnyBf16)
TESSERA_CHECK_PATHS(AnyF16)

void AssignF16Scalar(const char* in, int64_t n, float factor, float w, float* sum) {
  AssignF16Loop(in, n, factor, w, sum);
}
void AddF16Scalar(const char* in, int64_t n, float factor, float w, float* sum) {
  AddF16Loop(in, n, factor, w, sum);
}
void EncodeF16Scalar(const float* in, int64_t n, float inverse, char* out) {
  EncodeF16Loop(in, n, inverse, out);
}

// Eight codes of b bits are b bytes.
constexpr int kPackCount = 8;

TESSERA_LOOP uint64_t LowBits(int bits) { return 0x0101010101010101u * ((1u << bits) - 1); }

TESSERA_LOOP uint64_t Squeeze(uint64_t codes, int bits) {
  uint64_t packed = 0;
  for (int i = 0; i < kPackCount; ++i) {
    packed |= (codes >> 8 * i & ((1u << bits) - 1)) << bits * i;
  }
  return packed;
}

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
    const uint64_t packed = squeeze(Load<uint64_t>(reinterpret_cast<const char*>(codes)), bits);
    std::memcpy(out, &packed, bits);
  }
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

// Sets 8 or 16 entries from their halves, with the rest through a buffer of zeros.
template <bool kAdds>
TESSERA_CODEC_AVX2 inline void F16Avx2(const char* in, int64_t count, float weight, float* sum) {
  const __m256 weights = _mm256_set1_ps(weight);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    const __m256 x = _mm256_mul_ps(weights, _mm256_cvtph_ps(halves));
    _mm256_storeu_ps(sum + i, kAdds ? _mm256_add_ps(_mm256_loadu_ps(sum + i), x) : x);
  }
  F16Loop<kAdds>(in + 2 * i, count - i, weight, sum + i);
}
TESSERA_CODEC_AVX2 void AssignF16Avx2(const char* in, int64_t n, float, float w, float* sum) {
  F16Avx2<false>(in, n, w, sum);
}
TESSERA_CODEC_AVX2 void AddF16Avx2(const char* in, int64_t n, float, float w, float* sum) {
  F16Avx2<true>(in, n, w, sum);
}

TESSERA_CODEC_AVX2 void EncodeF16Avx2(const float* in, int64_t count, float, char* out) {
  const __m256i largest = _mm256_set1_epi32(0x477fe000);  // 65504
  const __m256i infinity = _mm256_set1_epi32(0x7f800000);
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    const __m256i abs = _mm256_and_si256(bits, magnitude);
    const __m256i finite = _mm256_cmpgt_epi32(infinity, abs);
    const __m256i clamped = _mm256_blendv_epi8(abs, _mm256_min_epi32(abs, largest), finite);
    const __m256i x = _mm256_or_si256(clamped, _mm256_andnot_si256(magnitude, bits));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm256_cvtps_ph(_mm256_castsi256_ps(x), _MM_FROUND_TO_NEAREST_INT));
  }
  EncodeF16Loop(in + i, count - i, 0, out + 2 * i);
}

template <bool kAdds>
TESSERA_CODEC_AVX512 inline void F16Avx512(const char* in, int64_t count, float weight,
                                           float* sum) {
  const __m512 weights = _mm512_set1_ps(weight);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * i));
    const __m512 x = _mm512_mul_ps(weights, _mm512_cvtph_ps(halves));
    _mm512_storeu_ps(sum + i, kAdds ? _mm512_add_ps(_mm512_loadu_ps(sum + i), x) : x);
  }
  F16Loop<kAdds>(in + 2 * i, count - i, weight, sum + i);
}
TESSERA_CODEC_AVX512 void AssignF16Avx512(const char* in, int64_t n, float, float w, float* sum) {
  F16Avx512<false>(in, n, w, sum);
}
TESSERA_CODEC_AVX512 void AddF16Avx512(const char* in, int64_t n, float, float w, float* sum) {
  F16Avx512<true>(in, n, w, sum);
}

TESSERA_CODEC_AVX512 void EncodeF16Avx512(const float* in, int64_t count, float, char* out) {
  const __m512i largest = _mm512_set1_epi32(0x477fe000);  // 65504
  const __m512i infinity = _mm512_set1_epi32(0x7f800000);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i bits = _mm512_loadu_si512(in + i);
    const __m512i abs = _mm512_and_si512(bits, magnitude);
    const __mmask16 finite = _mm512_cmplt_epi32_mask(abs, infinity);
    const __m512i clamped = _mm512_mask_min_epi32(abs, finite, abs, largest);
    const __m512i x = _mm512_or_si512(clamped, _mm512_andnot_si512(magnitude, bits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i),
                        _mm512_cvtps_ph(_mm512_castsi512_ps(x), _MM_FROUND_TO_NEAREST_INT));
  }
  EncodeF16Loop(in + i, count - i, 0, out + 2 * i);
}

// The byte-wise deposit and extract instructions do eight codes at once.
TESSERA_CODEC_AVX2 void PackBmi2(const int8_t* codes, int64_t count, int bits, char* out) {
  const uint64_t mask = LowBits(bits);
  // Eight bytes are stored, and the next group overwrites those that are too many.
  for (; count * bits >= 64; count -= kPackCount, codes += kPackCount, out += bits) {
    const uint64_t packed = _pext_u64(Load<uint64_t>(reinterpret_cast<const char*>(codes)), mask);
    std::memcpy(out, &packed, sizeof(packed));
  }
  PackScalar(codes, count, bits, out);
}
TESSERA_CODEC_AVX2 void UnpackBmi2(const char* in, int64_t count, int bits, int8_t* codes) {
  const uint64_t mask = LowBits(bits);
  const uint64_t signs = 0x0101010101010101u << (bits - 1);
  const uint64_t top = 0x8080808080808080u;
  for (; count * bits >= 64; count -= kPackCount, codes += kPackCount, in += bits) {
    const uint64_t flipped = _pdep_u64(Load<uint64_t>(in), mask) ^ signs;
    const uint64_t extended = ((flipped | top) - signs) ^ top;
    std::memcpy(codes, &extended, kPackCount);
  }
  UnpackScalar(in, count, bits, codes);
}

#endif

#define TESSERA_TABLE(path, pack, unpack)                                                      \
  {                                                                                            \
    {AssignF32##path, AssignBf16##path, AssignF16##path, AssignCode##path},                    \
        {AddF32##path, AddBf16##path, AddF16##path, AddCode##path},                            \
        {EncodeF32##path, EncodeBf16##path, EncodeF16##path, EncodeCode##path}, Largest##path, \
        SquareSum##path, {AnyF32##path, AnyBf16##path, AnyF16##path, nullptr},                 \
        RoundAtRandom##path, pack, unpack                                                      \
  }

constexpr RunLoops kScalarLoops = TESSERA_TABLE(Scalar, PackScalar, UnpackScalar);
#ifdef TESSERA_CODEC_X86
constexpr RunLoops kAvx2Loops = TESSERA_TABLE(Avx2, PackBmi2, UnpackBmi2);
constexpr RunLoops kAvx512Loops = TESSERA_TABLE(Avx512, PackBmi2, UnpackBmi2);
#endif

}  // namespace

const RunLoops& LoopsOf(CodecPath path) {
#ifdef TESSERA_CODEC_X86
  if (path == CodecPath::kAvx512) return kAvx512Loops;
  if (path == CodecPath::kAvx2) return kAvx2Loops;
#endif
  return kScalarLoops;
}

}  // namespace tessera
