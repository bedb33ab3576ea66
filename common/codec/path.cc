#include "common/codec/path.h"

namespace tessera {

bool HasCodecPath(CodecPath path) {
  if (path == CodecPath::kScalar) return true;
#ifdef TESSERA_CODEC_X86
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("bmi2");
  if (path == CodecPath::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

CodecPath BestCodecPath() {
  static const CodecPath best = HasCodecPath(CodecPath::kAvx512) ? CodecPath::kAvx512
                                : HasCodecPath(CodecPath::kAvx2) ? CodecPath::kAvx2
                                                                 : CodecPath::kScalar;
  return best;
}

}  // namespace tessera
