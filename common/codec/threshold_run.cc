#include "common/codec/threshold_run.h"

#include <cmath>
#include <cstring>

#include "common/base/check.h"

#ifdef TESSERA_CODEC_X86
#include <immintrin.h>
#endif

namespace tessera {
namespace {

ThresholdRun RunScalar(const float* update, float* residual, int64_t begin, int64_t count,
                       float tau, uint32_t* marks) {
  ThresholdRun run;
  for (int64_t i = begin; i < count; ++i) {
    const float v = update[i] + residual[i];
    uint32_t bits;
    std::memcpy(&bits, &v, sizeof(bits));
    const uint32_t magnitude = bits & 0x7fffffffu;
    run.largest = magnitude > run.largest ? magnitude : run.largest;
    // A NaN is not >= tau and stays in the residual; `largest` tells of it.
    const bool sent = std::fabs(v) >= tau;
    residual[i] = sent ? v - std::copysign(tau, v) : v;
    if (sent) marks[run.marks++] = static_cast<uint32_t>(i) << 1 | bits >> 31;
  }
  return run;
}

#ifdef TESSERA_CODEC_X86

TESSERA_CODEC_AVX512 ThresholdRun RunAvx512(const float* update, float* residual, int64_t count,
                                            float tau, uint32_t* marks) {
  const __m512 taus = _mm512_set1_ps(tau);
  const __m512i sign_bit = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  const __m512i lanes = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  __m512i largest = _mm512_setzero_si512();
  uint32_t* out = marks;
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t left = count - i;
    // Lanes past the end read as zeros, and must neither be sent nor written.
    const __mmask16 there = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    const __m512 v = _mm512_add_ps(_mm512_maskz_loadu_ps(there, update + i),
                                   _mm512_maskz_loadu_ps(there, residual + i));
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i magnitude = _mm512_andnot_si512(sign_bit, bits);
    largest = _mm512_max_epu32(largest, magnitude);
    const __mmask16 sent =
        there & _mm512_cmp_ps_mask(_mm512_castsi512_ps(magnitude), taus, _CMP_GE_OQ);
    // A sent entry loses tau towards zero, so tau gets the entry's sign.
    const __m512 step = _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_castps_si512(taus), _mm512_and_si512(bits, sign_bit)));
    _mm512_mask_storeu_ps(residual + i, there, _mm512_mask_sub_ps(v, sent, v, step));
    if (sent == 0) continue;
    const __m512i mark =
        _mm512_or_si512(_mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(i << 1)), lanes),
                        _mm512_srli_epi32(bits, 31));
    // The whole register is stored, sent lanes first; the next one overwrites the others. kThresholdSlack is their
    // room.
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(sent, mark));
    out += __builtin_popcount(sent);
  }
  return {out - marks, _mm512_reduce_max_epu32(largest)};
}

TESSERA_CODEC_AVX2 ThresholdRun RunAvx2(const float* update, float* residual, int64_t count,
                                        float tau, uint32_t* marks) {
  const __m256 taus = _mm256_set1_ps(tau);
  const __m256 sign_bit = _mm256_set1_ps(-0.0f);
  __m256i largest = _mm256_setzero_si256();
  uint32_t* out = marks;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 v = _mm256_add_ps(_mm256_loadu_ps(update + i), _mm256_loadu_ps(residual + i));
    const __m256 magnitude = _mm256_andnot_ps(sign_bit, v);
    largest = _mm256_max_epu32(largest, _mm256_castps_si256(magnitude));
    const __m256 sent = _mm256_cmp_ps(magnitude, taus, _CMP_GE_OQ);
    const __m256 step = _mm256_or_ps(taus, _mm256_and_ps(v, sign_bit));
    const __m256 after = _mm256_blendv_ps(v, _mm256_sub_ps(v, step), sent);
    _mm256_storeu_ps(residual + i, after);
    const uint32_t signs = _mm256_movemask_ps(v);
    for (uint32_t set = _mm256_movemask_ps(sent); set != 0; set &= set - 1) {
      const int lane = __builtin_ctz(set);
      *out++ = static_cast<uint32_t>(i + lane) << 1 | (signs >> lane & 1u);
    }
  }
  uint32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), largest);
  // Entries after the last full register go through the scalar loop, whose marks follow the others.
  ThresholdRun run = RunScalar(update, residual, i, count, tau, out);
  run.marks += out - marks;
  for (const uint32_t lane : lanes) run.largest = lane > run.largest ? lane : run.largest;
  return run;
}

#endif

}  // namespace

ThresholdRun RunThreshold(CodecPath path, const float* update, float* residual, int64_t count,
                          float tau, uint32_t* marks) {
  TESSERA_CHECK(count <= kThresholdRun);
#ifdef TESSERA_CODEC_X86
  if (path == CodecPath::kAvx512) return RunAvx512(update, residual, count, tau, marks);
  if (path == CodecPath::kAvx2) return RunAvx2(update, residual, count, tau, marks);
#endif
  return RunScalar(update, residual, 0, count, tau, marks);
}

}  // namespace tessera
