#include "common/codec/path.h"

#ifdef TESSERA_CODEC_X86
#include <cpuid.h>
#endif

namespace tessera {
#ifdef TESSERA_CODEC_X86
namespace {

// Clang's __builtin_cpu_supports does not know it.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

bool HasCodecPath(CodecPath path) {
  if (path == CodecPath::kScalar) return true;
#ifdef TESSERA_CODEC_X86
  // F16C and BMI2 came with AVX2 in every CPU so far, but are asked for by themselves: a virtual machine may hide them.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && HasF16c();
  if (path == CodecPath::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

CodecPath BestCodecPath() {
  // Asked once, as a CPU's instruction sets do not change.
  static const CodecPath best = HasCodecPath(CodecPath::kAvx512) ? CodecPath::kAvx512
                                : HasCodecPath(CodecPath::kAvx2) ? CodecPath::kAvx2
                                                                 : CodecPath::kScalar;
  return best;
}

}  // namespace tessera
