// What an exchange does to arrays in a device's memory: entries are written and read as a codec has
// them, and some of them are taken out and put back.
//
// common/codec and common/keyset say what comes out, bit for bit, whatever the device.
#ifndef TESSERA_KERNELS_EXCHANGE_H_
#define TESSERA_KERNELS_EXCHANGE_H_

#include <cstdint>

#include "common/codec/stochastic.h"
#include "common/codec/segment.h"
#include "common/codec/threshold_run.h"

namespace tessera {

// The marks of a threshold codec in kThresholdRun entries: how many, and the bits of the largest
// magnitude seen.
struct ThresholdTile {
  uint32_t marks = 0;
  uint32_t largest = 0;
};
// For each tile a bit for each entry that is sent, then as many that say which are negative.
constexpr int64_t kTileWords = 2 * kThresholdRun / 32;

inline int64_t ThresholdTiles(int64_t entries) {
  return (entries + kThresholdRun - 1) / kThresholdRun;
}

// Which places of a dense order are in a set (common/keyset/entry_set.h), in device memory.
struct PlaceSet {
  static constexpr int64_t kRankPlaces = 256;
  const uint64_t* words = nullptr;
  // By kRankPlaces places: how many of those before are in the set.
  const int64_t* ranks = nullptr;
  // By kRankPlaces places, of each 32 of them a byte: how many of the kRankPlaces before those are in the set.
  const uint64_t* steps = nullptr;
};

// Queued like every kernel. Bytes may be misaligned; arrays overlap only where it says so.
class ExchangeKernel {
 public:
  virtual ~ExchangeKernel() = default;

  // The bytes of `segment`, whose entries these are: as Encoder writes them, or, unless `residual` is
  // null, FeedbackEncoder, with as many entries of what was held back. Of a segment without headers
  // `segment` may be any part.
  virtual void Encode(const Segment& segment, const PayloadRandom& random, const float* entries,
                      float* residual, char* out) = 0;
  // What Decoder assigns with weight 1.
  virtual void Decode(const Segment& segment, const char* in, float* entries) = 0;

  // magnitudes[i] = |update[i * distance] + residual[i * distance]|, for all of `entries`.
  virtual void SampleMagnitudes(int64_t entries, int64_t distance, const float* update,
                                const float* residual, float* magnitudes) = 0;
  // RunThreshold of kThresholdRun entries at a time: tiles[t] and kTileWords words of bits for each.
  virtual void FindMarks(int64_t entries, float tau, const float* update, float* residual,
                         ThresholdTile* tiles, uint32_t* bits) = 0;
  // The marks that were found, those of tile t from marks[begin[t]] on.
  virtual void ListMarks(int64_t tiles, const uint32_t* bits, const int64_t* begin,
                         uint32_t* marks) = 0;

  // The payload of topk (common/codec/topk.h) for `entries` values, which are update and residual added up, with `k` of
  // each whole chunk. values[i] becomes what is held back.
  virtual void EncodeLargest(int64_t entries, int64_t k, float* values, char* out) = 0;

  // values[r] = all[place - begin] for those places of [begin, end) that are in the set, r being how
  // many places of the set are before.
  virtual void Gather(const PlaceSet& set, int64_t begin, int64_t end, const float* all,
                      float* values) = 0;
  // The other way. Other places are neither read nor written.
  virtual void Scatter(const PlaceSet& set, int64_t begin, int64_t end, const float* values,
                       float* all) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_EXCHANGE_H_
