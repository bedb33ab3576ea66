// Writes a payload from front to back, in as many calls as its sender likes.
//
// A bucket's header follows from all of the bucket, so an encoder must see a bucket whole; what it
// writes may end anywhere between groups of 128 entries, so that a row of any length is sent in
// chunks.
//
//   all 0          header 0, codes 0
//   largest magnitude below 2^-100
//                  the same: sent as 0
//   infinite, NaN  the header is that value, so that whoever checks the payload refuses it
#ifndef TESSERA_COMMON_CODEC_ENCODER_H_
#define TESSERA_COMMON_CODEC_ENCODER_H_

#include <cstdint>

#include "common/codec/bucket_scale.h"
#include "common/codec/coded_keys.h"
#include "common/codec/path.h"
#include "common/codec/stochastic.h"

namespace tessera {

// One thread. Two encoders of the same keys, random numbers and entries write the same bytes,
// wherever their calls end.
class Encoder {
 public:
  // With less room than this a call may write nothing.
  static constexpr int64_t kRoomMin = 256;

  // `keys` must outlive this. `random` is used where a codec rounds at random.
  Encoder(const CodedKeys& keys, const PayloadRandom& random, CodecPath path = BestCodecPath());

  // Bytes that are still to be written.
  int64_t left() const { return left_; }
  // Entries up to the end of the bucket at hand; whether Encode must be given all of them, as it
  // must where buckets have headers. 0: all are coded.
  struct Ahead {
    int64_t entries = 0;
    bool whole = false;
  };
  Ahead ahead() const;

  struct Step {
    int64_t entries = 0;
    int64_t bytes = 0;
  };
  // Codes the next entries, at most `count` of them into at most `room` bytes. Stops early only for
  // want of room. `decoded`, unless nullptr, receives what a reader will see of them.
  Step Encode(const float* entries, int64_t count, char* out, int64_t room,
              float* decoded = nullptr);

 private:
  Step EncodePlain(const float* entries, int64_t count, char* out, int64_t room, float* decoded);
  Step EncodeBucket(const float* entries, int64_t count, char* out, int64_t room, float* decoded);
  void Advance(int64_t entries);

  const CodedKeys& keys_;
  const PayloadRandom random_;
  const CodecPath path_;
  int64_t left_;
  size_t segment_ = 0;
  int64_t done_ = 0;  // entries of the segment
  // The bucket at hand: its number, length, and entries coded; length 0: not begun.
  uint64_t bucket_ = 0;
  int64_t bucket_size_ = 0;
  int64_t bucket_done_ = 0;
  BucketScale scale_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_ENCODER_H_
