// The loops over entries that stand by themselves, from one type that says how an entry is written (plain_entry.h).
//
// Each loop is written once in plain code and compiled for every CodecPath, where the compiler vectorises it. Files
// that include this are built with -O3.
#ifndef TESSERA_COMMON_CODEC_PLAIN_LOOPS_H_
#define TESSERA_COMMON_CODEC_PLAIN_LOOPS_H_

#include <cstdint>

#include "common/codec/entry_form.h"
#include "common/codec/path.h"

namespace tessera {

// Inlined into functions that are compiled for one instruction set each.
template <typename Entry>
struct PlainLoop {
  using Code = typename Entry::Code;

  __attribute__((always_inline)) static Code Load(const char* in) {
    Code code = 0;
    __builtin_memcpy(&code, in, Entry::kBytes);
    return code;
  }

  template <bool kAdds>
  __attribute__((always_inline)) static void Decode(const char* __restrict in, int64_t count,
                                                    float weight, float* __restrict sum) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = weight * Entry::From(Load(in + Entry::kBytes * i));
      sum[i] = kAdds ? sum[i] + x : x;
    }
  }

  __attribute__((always_inline)) static void Encode(const float* __restrict in, int64_t count,
                                                    char* __restrict out) {
    // An entry that is written as it is: a copy by the C library is faster than a loop by a twentieth.
    if constexpr (Entry::kBytes == sizeof(float)) {
      __builtin_memcpy(out, in, count * sizeof(float));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const Code code = Entry::Of(in[i]);
      __builtin_memcpy(out + Entry::kBytes * i, &code, Entry::kBytes);
    }
  }

  __attribute__((always_inline)) static bool AnyNotFinite(const char* in, int64_t count) {
    Code any = 0;
    for (int64_t i = 0; i < count; ++i) {
      any |= static_cast<Code>(!Entry::IsFinite(Load(in + Entry::kBytes * i)));
    }
    return any != 0;
  }
};

// The functions that EntryLoops has, one set for each path.
#define TESSERA_PLAIN_LOOPS(path, target)                                                     \
  template <typename Entry>                                                                   \
  struct PlainLoops##path {                                                                   \
    template <bool kAdds>                                                                     \
    target static void Decode(const char* in, int64_t n, float, float weight, float* sum) {   \
      PlainLoop<Entry>::template Decode<kAdds>(in, n, weight, sum);                           \
    }                                                                                         \
    target static void Encode(const float* in, int64_t n, char* out) {                        \
      PlainLoop<Entry>::Encode(in, n, out);                                                   \
    }                                                                                         \
    target static bool AnyNotFinite(const char* in, int64_t n) {                              \
      return PlainLoop<Entry>::AnyNotFinite(in, n);                                           \
    }                                                                                         \
    static constexpr EntryLoops kLoops = {Decode<false>, Decode<true>, Encode, AnyNotFinite}; \
  };
TESSERA_PLAIN_LOOPS(Scalar, )
TESSERA_PLAIN_LOOPS(Avx2, TESSERA_CODEC_AVX2)
TESSERA_PLAIN_LOOPS(Avx512, TESSERA_CODEC_AVX512)
#undef TESSERA_PLAIN_LOOPS

// The loops of each CodecPath, in its order.
template <typename Entry>
inline constexpr EntryLoops kPlainLoops[kCodecPaths] = {PlainLoopsScalar<Entry>::kLoops,
                                                        PlainLoopsAvx2<Entry>::kLoops,
                                                        PlainLoopsAvx512<Entry>::kLoops};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_PLAIN_LOOPS_H_
