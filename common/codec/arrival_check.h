// Finds the first entry of a payload that is no finite number, in bytes that arrive piece by piece.
//
//   an entry that stands by itself  that entry
//   a bucket with a header          one whose header is no finite number or below 0, or so large that a code could
//                                   stand for an infinite entry
#ifndef TESSERA_COMMON_CODEC_ARRIVAL_CHECK_H_
#define TESSERA_COMMON_CODEC_ARRIVAL_CHECK_H_

#include <cstdint>

#include "common/codec/coded_keys.h"
#include "common/codec/path.h"
#include "common/codec/payload.h"

namespace tessera {

// One thread. A header with codes in it is read once, its codes not at all.
class ArrivalCheck {
 public:
  // `keys` must outlive this.
  explicit ArrivalCheck(const CodedKeys& keys, CodecPath path = BestCodecPath());

  // True while nothing is wrong so far. `data` continues where the last call ended; more bytes than
  // keys.bytes() are not looked at.
  bool Feed(const char* data, int64_t size);
  // The entry, or the first of the bucket, at which Feed first returned false; -1: none.
  int64_t bad_entry() const { return bad_entry_; }

 private:
  void FeedPlain(const char** data, int64_t* size);
  void FeedBuckets(const char** data, int64_t* size);
  bool Carry(const char** data, int64_t* size, int64_t wanted);

  const CodedKeys& keys_;
  const CodecPath path_;
  size_t segment_ = 0;
  int64_t done_ = 0;        // entries of the segment
  int64_t before_ = 0;      // entries of the segments before
  int64_t code_bytes_ = 0;  // of the bucket at hand, that are still to come
  char carry_[4] = {};
  int64_t carry_size_ = 0;
  int64_t bad_entry_ = -1;
};

// Returns the first entry of a complete payload that is wrong, or the first entry of the bucket that is; -1: none is.
int64_t FirstBadEntry(const CodedKeys& keys, const Payload& payload);

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_ARRIVAL_CHECK_H_
