// Reads an update that is complete, however it was written.
#ifndef TESSERA_COMMON_CODEC_UPDATE_READER_H_
#define TESSERA_COMMON_CODEC_UPDATE_READER_H_

#include <cstdint>
#include <optional>

#include "common/codec/decoder.h"
#include "common/codec/threshold.h"

namespace tessera {

// One thread.
class UpdateReader {
 public:
  // Both must outlive this. `keys`: how the payload, which has their size, is written; nullptr: by
  // threshold, and it has passed CheckThresholdPayload.
  UpdateReader(const CodedKeys* keys, const Payload& payload) {
    if (keys != nullptr) {
      coded_.emplace(*keys, payload);
    } else {
      threshold_.emplace(payload);
    }
  }

  // sum[i] = weight * x[i], or sum[i] += weight * x[i], for the next `count` entries, which must be
  // left.
  void Assign(int64_t count, float weight, float* sum) {
    coded_ ? coded_->Assign(count, weight, sum) : threshold_->Assign(count, weight, sum);
  }
  void Accumulate(int64_t count, float weight, float* sum) {
    coded_ ? coded_->Accumulate(count, weight, sum) : threshold_->Accumulate(count, weight, sum);
  }

 private:
  std::optional<PayloadReader> coded_;
  std::optional<ThresholdReader> threshold_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_UPDATE_READER_H_
