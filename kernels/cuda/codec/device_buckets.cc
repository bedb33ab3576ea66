#include "kernels/cuda/codec/device_buckets.h"

#include <algorithm>

#include "kernels/cuda/codec/bucket_kernels.h"
#include "kernels/cuda/codec/row_code_kernels.h"

namespace tessera {
namespace {

using cuda::BucketGrid;

// Asks the segment itself for the bytes of a row and of a bucket, so that the payload's format is written down once.
BucketGrid GridOf(const Segment& s) {
  BucketGrid grid;
  grid.entries = s.entries;
  grid.row = s.row;
  grid.bucket = s.bucket;
  // A row's bytes are those of a segment of one row.
  Segment part = s;
  part.entries = s.row;
  grid.row_buckets = part.buckets();
  grid.row_bytes = part.bytes();
  part.entries = s.bucket;
  grid.bucket_bytes = part.bytes();
  grid.buckets = s.buckets();
  grid.first_bucket = s.first_bucket;
  grid.bits = s.bits;
  grid.divisor = s.divisor;
  return grid;
}

// Every bucket is one tile: its scale is found on the way.
template <bool kRandom>
void EncodeTiles(const DeviceCoding& coding, const BucketGrid& grid, const float* entries,
                 float* residual, char* out) {
  coding.device.Launch(
      grid.blocks(), cuda::EncodeBuckets<kRandom, true>{grid, coding.segment.l2_norm, coding.random,
                                                        entries, residual, out, nullptr});
}

// Buckets may be longer: a pass before finds their scales.
template <bool kRandom>
void EncodeLong(const DeviceCoding& coding, const BucketGrid& grid, const float* entries,
                float* residual, char* out) {
  // The first kernel leaves a scale for each bucket, which the second one reads.
  auto* const scales = static_cast<BucketScale*>(
      coding.scratch.Of(grid.buckets * static_cast<int64_t>(sizeof(BucketScale))));
  if (scales == nullptr) return;
  const bool l2_norm = coding.segment.l2_norm;
  coding.device.Launch(grid.buckets,
                       cuda::ScaleBuckets{grid, !kRandom, l2_norm, entries, residual, out, scales});
  coding.device.Launch(grid.blocks(),
                       cuda::EncodeBuckets<kRandom, false>{grid, l2_norm, coding.random, entries,
                                                           residual, out, scales});
}

// Rows that fit a block's registers, as all of at most kEntriesMax do. False: they do not.
template <int kSteps>
bool EncodeShortRows(const DeviceCoding& coding, const BucketGrid& grid, const float* entries,
                     float* residual, char* out) {
  // A segment shorter than a bucket has one short bucket.
  if (std::min(grid.bucket, grid.entries) > cuda::EncodeRows<kSteps>::kEntriesMax) return false;
  coding.device.Launch(grid.buckets, cuda::EncodeRows<kSteps>{grid, entries, residual, out});
  return true;
}

}  // namespace

void EncodeInt8OnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                        char* out) {
  const BucketGrid grid = GridOf(coding.segment);
  // The cheapest kernel comes first: one tile per bucket, then rows that fit a block's registers, else two passes.
  if (grid.tiles() == 1) return EncodeTiles<false>(coding, grid, entries, residual, out);
  if (EncodeShortRows<2>(coding, grid, entries, residual, out)) return;
  if (EncodeShortRows<4>(coding, grid, entries, residual, out)) return;
  if (EncodeShortRows<8>(coding, grid, entries, residual, out)) return;
  EncodeLong<false>(coding, grid, entries, residual, out);
}

void EncodeQsgdOnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                        char* out) {
  const BucketGrid grid = GridOf(coding.segment);
  if (grid.tiles() == 1) return EncodeTiles<true>(coding, grid, entries, residual, out);
  EncodeLong<true>(coding, grid, entries, residual, out);
}

void DecodeBucketsOnDevice(cuda::Device* device, const Segment& segment, const char* in,
                           float* entries) {
  const BucketGrid grid = GridOf(segment);
  device->Launch(grid.blocks(), cuda::DecodeBuckets{grid, in, entries});
}

}  // namespace tessera
