// The bytes of the threshold codec (threshold.h): how they are written, checked and read.
//
// Payload, little-endian:
//   payload  = tau(f32) packing(u32) body
//   body     = *word             packing 0
//            = *block            packing 1
//   word     = (entries skipped since the last one sent) * 2 + (1 if negative), u32; kSkip skips
//              2^31 - 1 entries and sends none
//   block    = count(u32) 4 * (size(u32) zstd-frame): the lowest bytes of `count` words, then the
//              second, third and highest ones. 65536 words, in the last block 1 to 65536
// A tau that is no finite number says that the update was not finite.
#ifndef TESSERA_COMMON_CODEC_THRESHOLD_PAYLOAD_H_
#define TESSERA_COMMON_CODEC_THRESHOLD_PAYLOAD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/codec/path.h"
#include "common/codec/payload.h"
#include "common/codec/selective_codec.h"
#include "common/codec/threshold_run.h"

struct ZSTD_DCtx_s;

namespace tessera {

class ThresholdEncoder final : public SelectionEncoder {
 public:
  // `tau` above 0. `packs`: the words are compressed.
  ThresholdEncoder(float tau, bool packs, CodecPath path = BestCodecPath());

  void Encode(const float* update, float* residual, int64_t count) override;
  void Add(const ThresholdRun& run, const uint32_t* marks, int64_t count) override;
  std::vector<char> Finish() override;

  int64_t sent() const { return sent_; }

 private:
  const float tau_;
  const bool packs_;
  const CodecPath path_;
  bool all_finite_ = true;
  int64_t skipped_ = 0;  // entries since the last one sent
  int64_t sent_ = 0;
  std::vector<uint32_t> words_;
};

// Reads the words of a payload one after the other, in place or block by block. One thread.
class ThresholdWords {
 public:
  // `payload` must outlive this.
  explicit ThresholdWords(const Payload& payload);
  ~ThresholdWords();

  float tau() const { return tau_; }
  bool packed() const { return packing_ != 0; }
  // False at the end, or at the first byte that is wrong: then status() says so.
  bool Next(uint32_t* word);
  const absl::Status& status() const { return status_; }

 private:
  bool Fill();
  bool FillBlock();
  // Copies the next `size` bytes; false: there are fewer.
  bool Take(int64_t size, char* out);

  const Payload& payload_;
  size_t piece_ = 0;
  int64_t offset_ = 0;
  int64_t left_;
  float tau_ = 0;
  uint32_t packing_ = 0;
  absl::Status status_;
  std::vector<uint32_t> words_;
  size_t next_ = 0;
  bool had_last_block_ = false;
  std::unique_ptr<ZSTD_DCtx_s, void (*)(ZSTD_DCtx_s*)> unpacker_;  // made at the first block
  std::vector<char> frame_;
  std::vector<unsigned char> plane_;
};

// No payload of so many entries is longer, packed or not.
int64_t ThresholdBytesMax(int64_t entries);

// Is this the payload of an update of so many entries? `packs`: it may be packed. Takes time in
// proportion to entries and bytes, whoever made it.
//   kInvalidArgument  cut off, another packing, a frame that does not unpack, a block but the last
//                     with fewer words than it may have, a place beyond the entries, a tau that is
//                     not finite or not above 0
absl::Status CheckThresholdPayload(const Payload& payload, int64_t entries, bool packs = true);

class ThresholdReader final : public SelectedReader {
 public:
  explicit ThresholdReader(const Payload& payload);

  void Assign(int64_t count, float weight, float* sum) override;
  void Accumulate(int64_t count, float weight, float* sum) override;
  std::optional<int64_t> NextPlace() const override {
    return ended_ ? std::nullopt : std::optional<int64_t>(next_);
  }
  int64_t Take(int64_t end, int64_t room, float weight, int64_t* places, float* values) override;

 private:
  void Step();

  ThresholdWords words_;
  int64_t at_ = 0;    // entries read
  int64_t next_ = 0;  // the place of the next entry sent
  bool negative_ = false;
  bool ended_ = false;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_THRESHOLD_PAYLOAD_H_
