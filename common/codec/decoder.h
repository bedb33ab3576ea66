// Reads a payload from front to back, where its bytes lie.
//
// The bytes come in pieces with arbitrary borders: a header, an entry or a group of packed entries
// may be misaligned, or lie across two pieces. What is where follows from the keys and the number
// of bytes read, never from the bytes, so no payload makes a decoder read or write elsewhere.
#ifndef TESSERA_COMMON_CODEC_DECODER_H_
#define TESSERA_COMMON_CODEC_DECODER_H_

#include <cstdint>

#include "common/codec/coded_keys.h"
#include "common/codec/path.h"
#include "common/codec/payload.h"
#include "common/codec/entry_form.h"

namespace tessera {

// Decodes bytes that arrive little by little. One thread.
class Decoder {
 public:
  // `keys` must outlive this.
  explicit Decoder(const CodedKeys& keys, CodecPath path = BestCodecPath());

  // Entries that are still to be read.
  int64_t left() const { return left_; }

  struct Step {
    int64_t bytes = 0;
    int64_t entries = 0;
  };
  // sum[i] = weight * x[i], or sum[i] += weight * x[i], for the next entries x: until there are
  // `count` of them, at most left(), or the bytes at `data` are used up.
  Step Assign(const char* data, int64_t size, float weight, float* sum, int64_t count);
  Step Accumulate(const char* data, int64_t size, float weight, float* sum, int64_t count);

 private:
  Step Read(EntryLoops::Decode EntryLoops::*which, const char* data, int64_t size, float weight,
            float* sum, int64_t count);
  bool BeginBucket(const char** data, int64_t* size);
  // Moves bytes into carry_ until it holds `wanted`; false: there were too few.
  bool Carry(const char** data, int64_t* size, int64_t wanted);
  int64_t ReadPacked(EntryLoops::Decode decode, const char** data, int64_t* size, float weight,
                     float* sum, int64_t count);
  int64_t ReadWhole(EntryLoops::Decode decode, const char** data, int64_t* size, float weight,
                    float* sum, int64_t count);
  void Advance(int64_t entries);

  const CodedKeys& keys_;
  const CodecPath path_;
  int64_t left_;
  size_t segment_ = 0;
  int64_t done_ = 0;         // entries of the segment
  int64_t bucket_left_ = 0;  // 0: its header comes next
  float factor_ = 1;
  // The beginning of a header or of a unit that is not complete.
  char carry_[8] = {};
  int64_t carry_size_ = 0;
  // Unpacked codes that were not asked for yet.
  static constexpr int64_t kGroup = 8;
  int8_t group_[kGroup] = {};
  int64_t group_begin_ = 0;
  int64_t group_end_ = 0;
};

// Reads the entries of a payload that is complete. One thread.
class PayloadReader {
 public:
  // Both must outlive this. The payload has keys.bytes().
  PayloadReader(const CodedKeys& keys, const Payload& payload, CodecPath path = BestCodecPath());

  // sum[i] = weight * x[i], or sum[i] += weight * x[i], for the next `count` entries, which must be
  // left.
  void Assign(int64_t count, float weight, float* sum);
  void Accumulate(int64_t count, float weight, float* sum);

 private:
  template <typename Take>
  void Walk(int64_t count, float* sum, Take take);

  const Payload& payload_;
  Decoder decoder_;
  size_t piece_ = 0;
  int64_t offset_ = 0;  // within the piece
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_DECODER_H_
