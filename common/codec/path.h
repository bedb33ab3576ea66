// The loops of all codecs exist for three instruction sets and give the same bits on each.
#ifndef TESSERA_COMMON_CODEC_PATH_H_
#define TESSERA_COMMON_CODEC_PATH_H_

#if defined(__GNUC__) && defined(__x86_64__)
#define TESSERA_CODEC_X86 1
#define TESSERA_CODEC_AVX2 __attribute__((target("avx2,f16c,bmi2")))
#define TESSERA_CODEC_AVX512 \
  __attribute__((target("avx2,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define TESSERA_CODEC_AVX2
#define TESSERA_CODEC_AVX512
#endif

namespace tessera {

enum class CodecPath { kScalar, kAvx2, kAvx512 };
constexpr int kCodecPaths = 3;

// Whether this CPU has the path.
bool HasCodecPath(CodecPath path);
// Returns the fastest path that this CPU has.
CodecPath BestCodecPath();

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_PATH_H_
