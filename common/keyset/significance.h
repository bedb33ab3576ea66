// What makes an entry core: its significance, and how the largest of a model are found without
// sorting it.
//
//   S = |w| + c |g|     both in f32; as it is at least 0, its bits as an integer order it
//
// A sample tells a few buckets of the upper 16 bits of S that the k-th largest is likely to be in. One
// pass over all entries counts by bucket there; counts by the lower 16 bits, of the entries of one
// bucket, then tell which S it has. Whatever is larger is core; of entries that have
// just this S those are that come first in the model: by parameter, row, column. So the core does
// not depend on the number of servers.
#ifndef TESSERA_COMMON_KEYSET_SIGNIFICANCE_H_
#define TESSERA_COMMON_KEYSET_SIGNIFICANCE_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/keyset/gather.h"

namespace tessera {

// Infinite, and what is no number, count as infinite: no S is larger.
constexpr uint32_t kSignificanceMax = 0x7f800000;
constexpr int kCoarseBuckets = (kSignificanceMax >> 16) + 1;
constexpr int kFineBuckets = 1 << 16;

// The arrays of so many entries that lie together. `g` may be nullptr: all 0.
struct SignificanceRun {
  const float* w = nullptr;
  const float* g = nullptr;
  int64_t size = 0;
};

// S's bits, of one entry or of many.
inline uint32_t SignificanceOf(float w, float g, float c) {
  const float s = c == 0 ? __builtin_fabsf(w) : __builtin_fabsf(w) + c * __builtin_fabsf(g);
  uint32_t bits = 0;
  std::memcpy(&bits, &s, sizeof(bits));
  bits &= 0x7fffffffu;
  return bits < kSignificanceMax ? bits : kSignificanceMax;
}
void Significances(const SignificanceRun& run, float c, uint32_t* out);

// sum |w| and sum |g|, in f64 in a fixed order: adds to `sums`.
struct MagnitudeSums {
  double w = 0;
  double g = 0;
};
void AddMagnitudes(const SignificanceRun& run, MagnitudeSums* sums);

// Buckets of upper halves: [first, last].
struct BucketRange {
  uint32_t first = 0;
  uint32_t last = kCoarseBuckets - 1;
};

// One pass that sorts entries by bucket: places, by bit, of those above `range` and those in it; S of the
// latter is appended to `values`, in order. `above` and `within` have a bit for each of the run's
// entries from bit `first` on; they are 0 there before. Returns the number of those above.
uint64_t SplitAt(const BucketRange& range, const SignificanceRun& run, float c, int64_t first,
                 uint64_t* above, uint64_t* within, std::vector<uint32_t>* values,
                 GatherPath path = BestGatherPath());

// A part of a model of `entries` that tells where about a threshold is: every stride-th entry.
constexpr int64_t kSamples = int64_t{1} << 16;
constexpr int64_t SampleStride(int64_t entries) {
  // Odd, so that samples go through all columns of a matrix.
  return entries <= kSamples ? 1 : entries / kSamples | 1;
}

// Estimates from the counts of a sample in which buckets the `wanted` largest of `entries` end. Chance would have to be
// off by six standard deviations for them to end elsewhere.
BucketRange RangeOf(const std::vector<uint64_t>& sample_counts, uint64_t wanted, uint64_t entries);

// The last bucket from which on there are at least `wanted` counts, or the first where there are not so
// many; `above`: those beyond it.
struct Threshold {
  uint32_t bucket = 0;
  uint64_t above = 0;
};
Threshold FindThreshold(const std::vector<uint64_t>& counts, uint64_t wanted);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_SIGNIFICANCE_H_
