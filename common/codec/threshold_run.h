// The threshold codec's loop: one pass over an update and its residual.
#ifndef TESSERA_COMMON_CODEC_THRESHOLD_RUN_H_
#define TESSERA_COMMON_CODEC_THRESHOLD_RUN_H_

#include <cstdint>

#include "common/codec/path.h"

namespace tessera {

// Entries of a run at most; `marks` has room for so many and for kThresholdSlack more.
constexpr int64_t kThresholdRun = 4096;
constexpr int64_t kThresholdSlack = 16;

struct ThresholdRun {
  int64_t marks = 0;     // written
  uint32_t largest = 0;  // bits of the largest magnitude; at least 0x7f800000: not finite
};

// v = update + residual; where |v| >= tau: a mark, place * 2 + sign, and residual = v - (tau with v's
// sign); elsewhere residual = v. All paths give the same bits.
ThresholdRun RunThreshold(CodecPath path, const float* update, float* residual, int64_t count,
                          float tau, uint32_t* marks);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_THRESHOLD_RUN_H_
