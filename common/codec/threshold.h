// The threshold codec: entries that have grown to tau are sent as their places, the rest waits.
//
// Strom: Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, Interspeech 2015.
//
//   v = update + r;  |v| >= tau: sent, as tau with v's sign;  r = v - sent
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
#ifndef TESSERA_COMMON_CODEC_THRESHOLD_H_
#define TESSERA_COMMON_CODEC_THRESHOLD_H_

#include <cstdint>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/codec/path.h"
#include "common/codec/payload.h"
#include "common/codec/threshold_run.h"

struct ZSTD_DCtx_s;

namespace tessera {

// tau: fixed, or led by samples of what is to be sent so that a share `density` of the entries is.
class Tau {
 public:
  // `fixed` 0: led.
  Tau(double fixed, double density);

  // While it is led and nothing but zeros was seen: so large that nothing is sent.
  float value() const;
  // Magnitudes that Lead would like to see.
  int64_t sample_size() const;
  // Before each update, with the magnitudes of some of its entries, residual included. Follows a
  // single sample by a third, so that its chance does not lead. A fixed one stays.
  void Lead(std::vector<float> magnitudes);
  // All that it goes by, which may be kept and written back; empty where it is fixed. What was never a state
  // of one is as if nothing had been seen.
  absl::Span<float> state();

 private:
  bool is_known() const;

  const float fixed_;  // 0: led
  const double density_;
  std::array<float, 2> state_{};  // the value, and 1 once it is known
};

// The even distance at which about `wanted` of `count` entries lie; odd, so that they do not stay in one
// column of a matrix.
int64_t SampleDistance(int64_t count, int64_t wanted);
// Appends |update + residual| of about `wanted` of the entries, at that distance.
void SampleMagnitudes(const float* update, const float* residual, int64_t count, int64_t wanted,
                      std::vector<float>* magnitudes);

// Makes one payload. One thread.
class ThresholdEncoder {
 public:
  // `tau` above 0. `packs`: the words are compressed.
  ThresholdEncoder(float tau, bool packs, CodecPath path = BestCodecPath());

  // The next `count` entries, and what is held back of them, which changes.
  void Encode(const float* update, float* residual, int64_t count);
  // The same where the loop over the entries was done elsewhere: what RunThreshold says of the next
  // `count` entries, at most kThresholdRun, and its marks.
  void Add(const ThresholdRun& run, const uint32_t* marks, int64_t count);
  // The payload. Nothing may be encoded after it.
  std::vector<char> Finish();

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

// Adds up a payload that passed the check. Of others it reads and writes no more than it should,
// either, but what it adds is undefined. One thread.
class ThresholdReader {
 public:
  explicit ThresholdReader(const Payload& payload);

  // sum[i] = weight * x[i], or sum[i] += weight * x[i], for the next `count` entries.
  void Assign(int64_t count, float weight, float* sum);
  void Accumulate(int64_t count, float weight, float* sum);

  // The same without the entries that were not sent; not beside the two above. Where the next entry
  // sent is; nullopt: there is none.
  std::optional<int64_t> NextPlace() const {
    return ended_ ? std::nullopt : std::optional<int64_t>(next_);
  }
  // The next entries sent before `end`, at most `room`: their places and weight * x. Returns how many.
  int64_t Take(int64_t end, int64_t room, float weight, int64_t* places, float* values);

 private:
  void Step();

  ThresholdWords words_;
  int64_t at_ = 0;    // entries read
  int64_t next_ = 0;  // the place of the next entry sent
  bool negative_ = false;
  bool ended_ = false;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_THRESHOLD_H_
