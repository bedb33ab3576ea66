#include "common/codec/stochastic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/limits.h"
#include "common/base/philox.h"
#include "common/codec/path.h"
#include "common/codec/stochastic_entry.h"

#ifdef TESSERA_CODEC_X86
#include <immintrin.h>
#endif

namespace tessera {
namespace {

// In the place of a rank: no worker's.
constexpr uint64_t kServersRank = kRankEnd;

// Packs what tells two payloads of a job apart into the upper half of Philox's counter: 32 bits of the exchange or
// version, 16 of the rank, 8 of the server.
uint64_t RandomA(uint64_t number, uint64_t rank, ShardId shard) {
  return (number & 0xffffffffu) | (rank & 0xffff) << 32 | (shard.value() & 0xff) << 48;
}

}  // namespace

PayloadRandom PayloadRandom::OfPush(uint64_t seed, Rank worker, Exchange exchange, ShardId shard) {
  return {seed, RandomA(exchange.value(), worker.value(), shard)};
}

PayloadRandom PayloadRandom::OfValues(uint64_t seed, Version version, ShardId shard) {
  return {seed, RandomA(version.value(), kServersRank, shard)};
}

void RoundAtRandomScalar(const float* in, int64_t count, float inverse, int levels,
                         const BucketRandom& random, int64_t first, int8_t* codes) {
  // A block has eight random numbers of 16 bits, for one lane of a group of 128 entries: entries lane, lane + 16, ...
  for (int64_t begin = 0; begin < count; begin += kRandomGroup) {
    const int64_t end = std::min(count, begin + kRandomGroup);
    const int64_t group = (first + begin) / kRandomGroup;
    for (int64_t lane = 0; lane < std::min(kRandomLanes, end - begin); ++lane) {
      const PhiloxBlock words = RoundingWords(random, group, lane);
      for (int64_t i = begin + lane; i < end; i += kRandomLanes) {
        const int half = static_cast<int>((i - begin) / kRandomLanes);
        codes[i] = RoundedAtRandom(in[i], inverse, static_cast<float>(levels), words, half, random,
                                   first + i);
      }
    }
  }
}

#ifdef TESSERA_CODEC_X86
namespace {

// Philox's own constants (Salmon et al., SC 2011), as in common/base/philox.h.
constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;

// Corrects the codes of the lanes in `ties`, whose random number equals the sixteen bits of the fraction that were
// compared. More bits decide then. It happens once in 65536 entries.
__attribute__((noinline)) void SettleTies(uint32_t ties, const float* in, int64_t entry,
                                          float inverse, int levels, const BucketRandom& random,
                                          int8_t* codes) {
  for (; ties != 0; ties &= ties - 1) {
    const int lane = __builtin_ctz(ties);
    const RoundingSplit s = SplitOf(in[lane], inverse, static_cast<float>(levels));
    const bool up = MoreIsUp(random, entry + lane, s.rest);
    codes[lane] = Signed(in[lane], s.whole + (up ? 1 : 0));
  }
}

// The counters of 16 blocks, those of even lanes apart from those of odd ones: each in the lower
// half of 64 bits, where products of 32 bits have room. What the upper halves hold is never read.
struct Counters512 {
  __m512i c0, c1, c2, c3;
};

// One round of Philox on the eight counters in the registers; 0x96 is the truth table of an xor of three.
TESSERA_CODEC_AVX512 inline void Round512(Counters512* c, __m512i k0, __m512i k1) {
  const __m512i p0 = _mm512_mul_epu32(c->c0, _mm512_set1_epi64(kMultiplier0));
  const __m512i p1 = _mm512_mul_epu32(c->c2, _mm512_set1_epi64(kMultiplier1));
  c->c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c->c1, k0, 0x96);
  c->c1 = p1;
  c->c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c->c3, k1, 0x96);
  c->c3 = p0;
}

// Lane l of words[k] is word k of block b + l.
TESSERA_CODEC_AVX512 inline void Blocks512(const PayloadRandom& payload, uint64_t b,
                                           __m512i words[4]) {
  const __m512i pairs = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i even = _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(b)), pairs);
  const __m512i odd = _mm512_add_epi64(even, _mm512_set1_epi64(1));
  const __m512i a_low = _mm512_set1_epi64(static_cast<int64_t>(payload.a & 0xffffffffu));
  const __m512i a_high = _mm512_set1_epi64(static_cast<int64_t>(
      static_cast<uint64_t>(Stream::kRounding) << 24 | (payload.a >> 32 & 0xffffffu)));
  // The counter's four words: the block's number, low and high, then the payload's `a` with the stream above it.
  Counters512 e = {even, _mm512_srli_epi64(even, 32), a_low, a_high};
  Counters512 o = {odd, _mm512_srli_epi64(odd, 32), a_low, a_high};
  uint32_t k0 = static_cast<uint32_t>(payload.seed);
  uint32_t k1 = static_cast<uint32_t>(payload.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const __m512i key0 = _mm512_set1_epi64(k0);
    const __m512i key1 = _mm512_set1_epi64(k1);
    Round512(&e, key0, key1);
    Round512(&o, key0, key1);
    // Philox bumps its key by the Weyl constants from round to round.
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  const __mmask16 odds = 0xAAAA;
  // Odd lanes were computed in registers of their own and are put back beside the even ones.
  words[0] = _mm512_mask_blend_epi32(odds, e.c0, _mm512_slli_epi64(o.c0, 32));
  words[1] = _mm512_mask_blend_epi32(odds, e.c1, _mm512_slli_epi64(o.c1, 32));
  words[2] = _mm512_mask_blend_epi32(odds, e.c2, _mm512_slli_epi64(o.c2, 32));
  words[3] = _mm512_mask_blend_epi32(odds, e.c3, _mm512_slli_epi64(o.c3, 32));
}

// Rounds 16 entries with the random numbers in r's lower halves; returns the lanes that are tied.
TESSERA_CODEC_AVX512 inline __mmask16 Lanes512(__m512 v, __m512i r, __m512 inverse, __m512 levels,
                                               __m512i* codes) {
  // The rounding of RoundedAtRandom, sixteen entries at a time and with its bits: |v| / scale is cut to levels, its
  // whole part is the code, and the fraction says how likely one more is.
  const __m512 x = _mm512_min_ps(_mm512_mul_ps(_mm512_abs_ps(v), inverse), levels);
  const __m512i whole = _mm512_cvttps_epi32(x);
  const __m512 scaled =
      _mm512_mul_ps(_mm512_sub_ps(x, _mm512_cvtepi32_ps(whole)), _mm512_set1_ps(65536.0f));
  const __m512i t = _mm512_cvttps_epi32(scaled);
  const __mmask16 up = _mm512_cmplt_epi32_mask(r, t);
  const __m512i magnitude = _mm512_mask_add_epi32(whole, up, whole, _mm512_set1_epi32(1));
  const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(v));
  *codes = _mm512_mask_sub_epi32(magnitude, negative, _mm512_setzero_si512(), magnitude);
  return _mm512_cmpeq_epi32_mask(r, t);
}

}  // namespace

TESSERA_CODEC_AVX512
void RoundAtRandomAvx512(const float* in, int64_t count, float inverse, int levels,
                         const BucketRandom& random, int64_t first, int8_t* codes) {
  const __m512 inverses = _mm512_set1_ps(inverse);
  const __m512 limits = _mm512_set1_ps(static_cast<float>(levels));
  for (int64_t begin = 0; begin < count; begin += kRandomGroup) {
    __m512i words[4];
    Blocks512(random.payload, RoundingB(random, (first + begin) / kRandomGroup * kRandomLanes),
              words);
    const int64_t end = std::min(count, begin + kRandomGroup);
    for (int64_t i = begin; i < end; i += kRandomLanes) {
      const int64_t half = (i - begin) / kRandomLanes;
      const __m512i word = words[half / 2];
      const __m512i r = half % 2 == 0 ? _mm512_and_si512(word, _mm512_set1_epi32(0xffff))
                                      : _mm512_srli_epi32(word, 16);
      const int64_t taken = std::min(kRandomLanes, end - i);
      // The last entries of a bucket may be fewer than a register: the others' lanes are neither read nor written.
      const __mmask16 lanes = static_cast<__mmask16>((1u << taken) - 1);
      __m512i rounded;
      const __mmask16 ties =
          lanes & Lanes512(_mm512_maskz_loadu_ps(lanes, in + i), r, inverses, limits, &rounded);
      _mm_mask_storeu_epi8(codes + i, lanes, _mm512_cvtepi32_epi8(rounded));
      if (__builtin_expect(ties != 0, 0)) {
        SettleTies(ties, in + i, first + i, inverse, levels, random, codes + i);
      }
    }
  }
}

namespace {

struct Counters256 {
  __m256i c0, c1, c2, c3;
};

// One round of Philox on four counters, as Round512 has it for eight.
TESSERA_CODEC_AVX2 inline void Round256(Counters256* c, __m256i k0, __m256i k1) {
  const __m256i p0 = _mm256_mul_epu32(c->c0, _mm256_set1_epi64x(kMultiplier0));
  const __m256i p1 = _mm256_mul_epu32(c->c2, _mm256_set1_epi64x(kMultiplier1));
  c->c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c->c1), k0);
  c->c1 = p1;
  c->c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c->c3), k1);
  c->c3 = p0;
}

TESSERA_CODEC_AVX2 inline __m256i Interleave256(__m256i even, __m256i odd) {
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

// As Blocks512 for 8 blocks.
TESSERA_CODEC_AVX2 inline void Blocks256(const PayloadRandom& payload, uint64_t b,
                                         __m256i words[4]) {
  const __m256i even =
      _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(b)), _mm256_set_epi64x(6, 4, 2, 0));
  const __m256i odd = _mm256_add_epi64(even, _mm256_set1_epi64x(1));
  const __m256i a_low = _mm256_set1_epi64x(static_cast<int64_t>(payload.a & 0xffffffffu));
  const __m256i a_high = _mm256_set1_epi64x(static_cast<int64_t>(
      static_cast<uint64_t>(Stream::kRounding) << 24 | (payload.a >> 32 & 0xffffffu)));
  Counters256 e = {even, _mm256_srli_epi64(even, 32), a_low, a_high};
  Counters256 o = {odd, _mm256_srli_epi64(odd, 32), a_low, a_high};
  uint32_t k0 = static_cast<uint32_t>(payload.seed);
  uint32_t k1 = static_cast<uint32_t>(payload.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const __m256i key0 = _mm256_set1_epi64x(k0);
    const __m256i key1 = _mm256_set1_epi64x(k1);
    Round256(&e, key0, key1);
    Round256(&o, key0, key1);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  words[0] = Interleave256(e.c0, o.c0);
  words[1] = Interleave256(e.c1, o.c1);
  words[2] = Interleave256(e.c2, o.c2);
  words[3] = Interleave256(e.c3, o.c3);
}

// As Lanes512 for 8 entries.
TESSERA_CODEC_AVX2 inline int Lanes256(__m256 v, __m256i r, __m256 inverse, __m256 levels,
                                       __m256i* codes) {
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
  const __m256 x = _mm256_min_ps(_mm256_mul_ps(magnitude, inverse), levels);
  const __m256i whole = _mm256_cvttps_epi32(x);
  const __m256 scaled =
      _mm256_mul_ps(_mm256_sub_ps(x, _mm256_cvtepi32_ps(whole)), _mm256_set1_ps(65536.0f));
  const __m256i t = _mm256_cvttps_epi32(scaled);
  // A true comparison is -1 in every lane.
  const __m256i rounded = _mm256_sub_epi32(whole, _mm256_cmpgt_epi32(t, r));
  const __m256i sign = _mm256_srai_epi32(_mm256_castps_si256(v), 31);
  *codes = _mm256_sub_epi32(_mm256_xor_si256(rounded, sign), sign);
  return _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(r, t)));
}

}  // namespace

TESSERA_CODEC_AVX2
void RoundAtRandomAvx2(const float* in, int64_t count, float inverse, int levels,
                       const BucketRandom& random, int64_t first, int8_t* codes) {
  const __m256 inverses = _mm256_set1_ps(inverse);
  const __m256 limits = _mm256_set1_ps(static_cast<float>(levels));
  for (int64_t begin = 0; begin < count; begin += kRandomGroup) {
    const uint64_t block = RoundingB(random, (first + begin) / kRandomGroup * kRandomLanes);
    __m256i words[2][4];
    Blocks256(random.payload, block, words[0]);
    Blocks256(random.payload, block + 8, words[1]);
    const int64_t end = std::min(count, begin + kRandomGroup);
    for (int64_t i = begin; i < end; i += 8) {
      const int64_t half = (i - begin) / kRandomLanes;
      const __m256i word = words[(i - begin) / 8 % 2][half / 2];
      const __m256i r = half % 2 == 0 ? _mm256_and_si256(word, _mm256_set1_epi32(0xffff))
                                      : _mm256_srli_epi32(word, 16);
      const int64_t taken = std::min<int64_t>(8, end - i);
      // AVX2 has no masked load of this kind: the last entries pass through a small array.
      float few[8] = {};
      if (taken < 8) std::memcpy(few, in + i, taken * sizeof(float));
      __m256i rounded;
      const uint32_t ties =
          Lanes256(_mm256_loadu_ps(taken < 8 ? few : in + i), r, inverses, limits, &rounded) &
          ((1u << taken) - 1);
      // The codes fit a byte, so that saturating packs change none.
      const __m128i words16 =
          _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
      int8_t bytes[16];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm_packs_epi16(words16, words16));
      std::memcpy(codes + i, bytes, taken);
      if (__builtin_expect(ties != 0, 0)) {
        SettleTies(ties, in + i, first + i, inverse, levels, random, codes + i);
      }
    }
  }
}

#endif

}  // namespace tessera
