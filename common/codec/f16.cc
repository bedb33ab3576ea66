#include "common/codec/f16.h"

#include "common/codec/plain_entry.h"
#include "common/codec/plain_loops.h"

#ifdef TESSERA_CODEC_X86
#include <immintrin.h>
#endif

namespace tessera {
namespace {

#ifdef TESSERA_CODEC_X86

// The conversion instructions take 8 or 16 entries at a time; the rest goes through the plain loops.
template <bool kAdds>
TESSERA_CODEC_AVX2 void DecodeAvx2(const char* in, int64_t count, float, float weight, float* sum) {
  const __m256 weights = _mm256_set1_ps(weight);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    const __m256 x = _mm256_mul_ps(weights, _mm256_cvtph_ps(halves));
    _mm256_storeu_ps(sum + i, kAdds ? _mm256_add_ps(_mm256_loadu_ps(sum + i), x) : x);
  }
  PlainLoop<AsF16>::Decode<kAdds>(in + 2 * i, count - i, weight, sum + i);
}

// A finite value beyond 65504 is clamped to it, as rounding would make it infinite; infinities and NaNs pass as they
// are. Magnitudes are compared as integers, which f32 bits without the sign allow.
TESSERA_CODEC_AVX2 void EncodeAvx2(const float* in, int64_t count, char* out) {
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
  PlainLoop<AsF16>::Encode(in + i, count - i, out + 2 * i);
}

template <bool kAdds>
TESSERA_CODEC_AVX512 void DecodeAvx512(const char* in, int64_t count, float, float weight,
                                       float* sum) {
  const __m512 weights = _mm512_set1_ps(weight);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * i));
    const __m512 x = _mm512_mul_ps(weights, _mm512_cvtph_ps(halves));
    _mm512_storeu_ps(sum + i, kAdds ? _mm512_add_ps(_mm512_loadu_ps(sum + i), x) : x);
  }
  PlainLoop<AsF16>::Decode<kAdds>(in + 2 * i, count - i, weight, sum + i);
}

TESSERA_CODEC_AVX512 void EncodeAvx512(const float* in, int64_t count, char* out) {
  // Constants are those of the AVX2 loop, in twice the width.
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
  // Fewer entries than a register holds are coded one by one, to the same bits.
  PlainLoop<AsF16>::Encode(in + i, count - i, out + 2 * i);
}

constexpr EntryLoops kLoops[kCodecPaths] = {
    PlainLoopsScalar<AsF16>::kLoops,
    {DecodeAvx2<false>, DecodeAvx2<true>, EncodeAvx2, PlainLoopsAvx2<AsF16>::AnyNotFinite},
    {DecodeAvx512<false>, DecodeAvx512<true>, EncodeAvx512, PlainLoopsAvx512<AsF16>::AnyNotFinite}};

#else

constexpr const EntryLoops* kLoops = kPlainLoops<AsF16>;

#endif

class F16 final : public CodecDefinition {
 public:
  F16() : CodecDefinition("f16", "", Traits()) {}

  Segment Write(const ParameterRows& rows) const override {
    return PlainSegment(kF16Form, AsF16::kBytes, rows.entries);
  }

 private:
  // The mantissa has ten bits and the exponent five: small changes are rounded away, and tiny ones vanish.
  static CodecTraits Traits() {
    CodecTraits traits;
    traits.loss = CodecLoss::kBiased;
    traits.entry_bytes = AsF16::kBytes;
    traits.on_devices = true;
    return traits;
  }
};

}  // namespace

const EntryForm kF16Form = {kLoops, nullptr, nullptr};

Codec F16Codec() { return Codec(std::make_shared<const F16>()); }

}  // namespace tessera
