// The threshold codec: entries that have grown to tau are sent as their places, the rest waits (threshold_payload.h).
//
// Strom: Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, Interspeech 2015.
//
//   v = update + r;  |v| >= tau: sent, as tau with v's sign;  r = v - sent
#ifndef TESSERA_COMMON_CODEC_THRESHOLD_H_
#define TESSERA_COMMON_CODEC_THRESHOLD_H_

#include "common/codec/codec.h"

namespace tessera {

struct ThresholdNumbers {
  // Fixed; 0: adapted, so that the share `density` of the entries is sent (tau.h).
  double tau = 0;
  double density = 0.002;
  bool packed = false;  // places are compressed
};

Codec ThresholdCodec(const ThresholdNumbers& numbers = {});

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_THRESHOLD_H_
