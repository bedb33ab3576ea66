// Reads an update that is complete, however it was written.
#ifndef TESSERA_COMMON_CODEC_UPDATE_READER_H_
#define TESSERA_COMMON_CODEC_UPDATE_READER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "common/codec/codec.h"
#include "common/codec/decoder.h"
#include "common/codec/selective_codec.h"

namespace tessera {

// One thread.
class UpdateReader {
 public:
  // `keys` and `payload` must outlive this. `keys`: how the payload, which has their size, is written; nullptr: `codec`
  // is selective, and the payload has passed its check.
  UpdateReader(const Codec& codec, const CodedKeys* keys, const Payload& payload) {
    if (keys != nullptr) {
      coded_.emplace(*keys, payload);
    } else {
      selected_ = codec->selective()->NewReader(payload);
    }
  }

  // sum[i] = weight * x[i], or sum[i] += weight * x[i], for the next `count` entries, which must be
  // left.
  void Assign(int64_t count, float weight, float* sum) {
    coded_ ? coded_->Assign(count, weight, sum) : selected_->Assign(count, weight, sum);
  }
  void Accumulate(int64_t count, float weight, float* sum) {
    coded_ ? coded_->Accumulate(count, weight, sum) : selected_->Accumulate(count, weight, sum);
  }

 private:
  std::optional<PayloadReader> coded_;
  std::unique_ptr<SelectedReader> selected_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_UPDATE_READER_H_
