// The codecs of common/codec on arrays in the host's memory.
#ifndef TESSERA_KERNELS_CPU_EXCHANGE_H_
#define TESSERA_KERNELS_CPU_EXCHANGE_H_

#include "kernels/exchange.h"

namespace tessera {

class CpuExchange final : public ExchangeKernel {
 public:
  void Encode(const Segment& segment, const PayloadRandom& random, const float* entries,
              float* residual, char* out) override;
  void Decode(const Segment& segment, const char* in, float* entries) override;
  void SampleMagnitudes(int64_t entries, int64_t distance, const float* update,
                        const float* residual, float* magnitudes) override;
  void FindMarks(int64_t entries, float tau, const float* update, float* residual,
                 ThresholdTile* tiles, uint32_t* bits) override;
  void ListMarks(int64_t tiles, const uint32_t* bits, const int64_t* begin,
                 uint32_t* marks) override;
  void EncodeLargest(int64_t entries, int64_t k, float* values, char* out) override;
  void Gather(const PlaceSet& set, int64_t begin, int64_t end, const float* all,
              float* values) override;
  void Scatter(const PlaceSet& set, int64_t begin, int64_t end, const float* values,
               float* all) override;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_EXCHANGE_H_
