// The f32 codec: little-endian IEEE singles in key-set order.  4 bytes per entry.
//
// The bytes of a payload come in pieces with arbitrary borders: an entry may be misaligned, or lie
// across two pieces. Everything here reads them in place.
#ifndef TESSERA_COMMON_CODEC_F32_H_
#define TESSERA_COMMON_CODEC_F32_H_

#include <cstdint>

#include "common/codec/payload.h"

namespace tessera {

// Walks a payload from front to back.
class F32Reader {
 public:
  explicit F32Reader(const Payload& payload) : payload_(payload) {}

  // sum[i] = weight * x[i], or sum[i] += weight * x[i], for the next `count` entries. The payload
  // must have that many left.
  void Assign(int64_t count, float weight, float* sum);
  void Accumulate(int64_t count, float weight, float* sum);

 private:
  template <typename Run>
  void Walk(int64_t count, float* sum, Run run);

  const Payload& payload_;
  size_t piece_ = 0;
  int64_t offset_ = 0;  // within the piece
};

// Finds the first entry that is infinite or not a number, in bytes that arrive piece by piece.
class FiniteCheck {
 public:
  // True while all entries so far are finite. `data` continues where the last call ended.
  bool Feed(const char* data, int64_t size);
  // The entry at which Feed first returned false.
  int64_t bad_entry() const { return bad_entry_; }

 private:
  int64_t entries_ = 0;
  int64_t bad_entry_ = -1;
  char carry_[4] = {};
  int carry_size_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_F32_H_
