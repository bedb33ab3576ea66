#include "kernels/cuda/exchange.h"

#include <cstddef>

#include "common/base/check.h"
#include "common/codec/selective_codec.h"
#include "common/codec/topk.h"
#include "kernels/cuda/codec/device_codecs.h"
#include "kernels/cuda/codec/topk_kernels.h"
#include "kernels/cuda/selection_kernels.h"

namespace tessera {
namespace {

// Their headers are not for nvcc.
static_assert(sizeof(cuda::TileMarks) == sizeof(ThresholdTile) &&
              offsetof(cuda::TileMarks, largest) == offsetof(ThresholdTile, largest));
static_assert(2 * cuda::FindMarks::kWords == kTileWords);
static_assert(cuda::EncodeLargest::kChunk == kTopkChunk);
static_assert(cuda::SetOfPlaces::kRankPlaces == PlaceSet::kRankPlaces);

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

void CudaExchange::Encode(const Segment& segment, const PayloadRandom& random, const float* entries,
                          float* residual, char* out) {
  if (segment.entries == 0) return;
  DeviceCodecOf(*segment.form).encode({device_, scratch_, segment, random}, entries, residual, out);
}

void CudaExchange::Decode(const Segment& segment, const char* in, float* entries) {
  if (segment.entries == 0) return;
  DeviceCodecOf(*segment.form).decode(&device_, segment, in, entries);
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

void CudaExchange::EncodeLargest(int64_t entries, int64_t k, float* values, char* out) {
  if (entries == 0) return;
  const cuda::EncodeLargest kernel{values, entries, k,
                                   TopkCodec({k})->selective()->BytesMax(kTopkChunk), out};
  device_.Launch(kernel.blocks(), kernel);
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
