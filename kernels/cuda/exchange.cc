#include "kernels/cuda/exchange.h"

#include <algorithm>
#include <cstddef>

#include "common/base/check.h"
#include "kernels/cuda/exchange_kernels.h"
#include "kernels/cuda/row_code_kernels.h"
#include "kernels/cuda/selection_kernels.h"

namespace tessera {
namespace {

using cuda::BucketGrid;

// Their headers are not for nvcc.
static_assert(sizeof(cuda::TileMarks) == sizeof(ThresholdTile) &&
              offsetof(cuda::TileMarks, largest) == offsetof(ThresholdTile, largest));
static_assert(2 * cuda::FindMarks::kWords == kTileWords);
static_assert(cuda::SetOfPlaces::kRankPlaces == PlaceSet::kRankPlaces);

BucketGrid GridOf(const Stretch& s) {
  BucketGrid grid;
  grid.entries = s.entries;
  grid.row = s.row;
  grid.bucket = s.bucket;
  Stretch part = s;
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

template <typename Form>
void LaunchEncode(const float* entries, float* residual, int64_t n, char* out,
                  cuda::Device* device) {
  const cuda::EncodePlain<Form> kernel{{}, entries, residual, out, n};
  device->Launch(kernel.blocks(), kernel);
}

template <typename Form>
void LaunchDecode(const char* in, int64_t n, float* entries, cuda::Device* device) {
  const cuda::DecodePlain<Form> kernel{{}, in, entries, n};
  device->Launch(kernel.blocks(), kernel);
}

template <typename Kernel>
void MovePlaces(const PlaceSet& set, int64_t begin, int64_t end, const float* from, float* to,
                cuda::Device* device) {
  Kernel kernel;
  kernel.set = {set.words, set.ranks, set.steps};
  kernel.begin = begin;
  kernel.end = end;
  kernel.from = from;
  kernel.to = to;
  device->Launch(kernel.blocks(), kernel);
}

}  // namespace

template <int kSteps>
void CudaExchange::LaunchRows(const BucketGrid& grid, const float* entries, float* residual,
                              char* out) {
  device_.Launch(grid.buckets, cuda::EncodeRows<kSteps>{grid, entries, residual, out});
}

template <bool kRandom>
void CudaExchange::EncodeCodes(const Codec& codec, const Stretch& stretch,
                               const PayloadRandom& random, const float* entries, float* residual,
                               char* out) {
  const BucketGrid grid = GridOf(stretch);
  const bool l2_norm = kRandom && codec.l2_norm;
  if (grid.tiles() == 1) {
    return device_.Launch(
        grid.blocks(),
        cuda::EncodeBuckets<kRandom, true>{grid, l2_norm, random, entries, residual, out, nullptr});
  }
  if constexpr (!kRandom) {
    const int64_t longest = std::min(grid.bucket, grid.entries);
    if (longest <= cuda::EncodeRows<2>::kEntriesMax) {
      return LaunchRows<2>(grid, entries, residual, out);
    }
    if (longest <= cuda::EncodeRows<4>::kEntriesMax) {
      return LaunchRows<4>(grid, entries, residual, out);
    }
    if (longest <= cuda::EncodeRows<8>::kEntriesMax) {
      return LaunchRows<8>(grid, entries, residual, out);
    }
  }
  auto* const scales = static_cast<BucketScale*>(
      scratch_.Of(grid.buckets * static_cast<int64_t>(sizeof(BucketScale))));
  if (scales == nullptr) return;
  device_.Launch(grid.buckets,
                 cuda::ScaleBuckets{grid, !kRandom, l2_norm, entries, residual, out, scales});
  device_.Launch(grid.blocks(), cuda::EncodeBuckets<kRandom, false>{grid, l2_norm, random, entries,
                                                                    residual, out, scales});
}

void CudaExchange::Encode(const Codec& codec, const Stretch& stretch, const PayloadRandom& random,
                          const float* entries, float* residual, char* out) {
  if (stretch.entries == 0) return;
  switch (stretch.form) {
    case EntryForm::kF32:
      if (residual == nullptr) {
        return device_.Copy(cuda::Stream::kCompute, entries, 0, 1, stretch.bytes(), out, 0);
      }
      return LaunchEncode<cuda::AsF32>(entries, residual, stretch.entries, out, &device_);
    case EntryForm::kBf16:
      return LaunchEncode<cuda::AsBf16>(entries, residual, stretch.entries, out, &device_);
    case EntryForm::kF16:
      return LaunchEncode<cuda::AsF16>(entries, residual, stretch.entries, out, &device_);
    case EntryForm::kCode:
      if (codec.kind == CodecKind::kInt8) {
        return EncodeCodes<false>(codec, stretch, random, entries, residual, out);
      }
      return EncodeCodes<true>(codec, stretch, random, entries, residual, out);
  }
}

void CudaExchange::Decode(const Stretch& stretch, const char* in, float* entries) {
  if (stretch.entries == 0) return;
  switch (stretch.form) {
    case EntryForm::kF32:
      return device_.Copy(cuda::Stream::kCompute, in, 0, 1, stretch.bytes(), entries, 0);
    case EntryForm::kBf16:
      return LaunchDecode<cuda::AsBf16>(in, stretch.entries, entries, &device_);
    case EntryForm::kF16:
      return LaunchDecode<cuda::AsF16>(in, stretch.entries, entries, &device_);
    case EntryForm::kCode: {
      const BucketGrid grid = GridOf(stretch);
      return device_.Launch(grid.blocks(), cuda::DecodeBuckets{grid, in, entries});
    }
  }
}

void CudaExchange::SampleMagnitudes(int64_t entries, int64_t distance, const float* update,
                                    const float* residual, float* magnitudes) {
  const cuda::SampleEntries kernel{
      {}, update, residual, magnitudes, cuda::CeilDiv(entries, distance), distance};
  device_.Launch(kernel.blocks(), kernel);
}

void CudaExchange::FindMarks(int64_t entries, float tau, const float* update, float* residual,
                             ThresholdTile* tiles, uint32_t* bits) {
  TESSERA_CHECK(tau > 0);
  const cuda::FindMarks kernel{
      update, residual, entries, tau, reinterpret_cast<cuda::TileMarks*>(tiles), bits};
  device_.Launch(kernel.blocks(), kernel);
}

void CudaExchange::ListMarks(int64_t tiles, const uint32_t* bits, const int64_t* begin,
                             uint32_t* marks) {
  device_.Launch(tiles, cuda::ListMarks{bits, begin, marks});
}

void CudaExchange::Gather(const PlaceSet& set, int64_t begin, int64_t end, const float* all,
                          float* values) {
  MovePlaces<cuda::GatherPlaces>(set, begin, end, all, values, &device_);
}

void CudaExchange::Scatter(const PlaceSet& set, int64_t begin, int64_t end, const float* values,
                           float* all) {
  MovePlaces<cuda::ScatterPlaces>(set, begin, end, values, all, &device_);
}

}  // namespace tessera
