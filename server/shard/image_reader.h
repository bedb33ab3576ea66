// Reads the parts of a payload one after the other, each into a place of its own.
#ifndef TESSERA_SERVER_SHARD_IMAGE_READER_H_
#define TESSERA_SERVER_SHARD_IMAGE_READER_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/codec/payload.h"

namespace tessera {

// `payload` must outlive this.
class ImageReader {
 public:
  explicit ImageReader(const Payload& payload) : payload_(payload), left_(payload.size()) {}

  int64_t left() const { return left_; }

  // The next `bytes`; there must be so many.
  void Read(int64_t bytes, void* out) {
    char* to = static_cast<char*>(out);
    left_ -= bytes;
    while (bytes > 0) {
      const Payload::Piece& piece = payload_.pieces()[piece_];
      const int64_t taken = std::min(bytes, piece.size - offset_);
      std::memcpy(to, piece.data + offset_, static_cast<size_t>(taken));
      to += taken;
      bytes -= taken;
      offset_ += taken;
      if (offset_ < piece.size) return;
      offset_ = 0;
      ++piece_;
    }
  }
  void Read(int64_t count, float* out) {
    Read(count * static_cast<int64_t>(sizeof(float)), static_cast<void*>(out));
  }

 private:
  const Payload& payload_;
  int64_t left_;
  size_t piece_ = 0;
  int64_t offset_ = 0;  // in that piece
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_IMAGE_READER_H_
