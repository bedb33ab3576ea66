// Received bytes, where the network left them: pieces of memory that something else owns.
//
// A payload is moved from the transport to the shard and read there in place, so its bytes are
// touched for the first time by the arithmetic that uses them.
#ifndef TESSERA_COMMON_CODEC_PAYLOAD_H_
#define TESSERA_COMMON_CODEC_PAYLOAD_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tessera {

// Movable, not copied.
class Payload {
 public:
  struct Piece {
    const char* data = nullptr;
    int64_t size = 0;
  };

  Payload() = default;
  Payload(Payload&&) = default;
  Payload& operator=(Payload&&) = default;

  // Appends bytes that stay valid while `owner` lives.
  void Append(Piece piece, std::shared_ptr<const void> owner) {
    if (piece.size == 0) return;
    size_ += piece.size;
    pieces_.push_back(piece);
    if (owners_.empty() || owners_.back() != owner) owners_.push_back(std::move(owner));
  }

  // Returns a second payload that refers to the same bytes.
  Payload Share() const {
    Payload shared;
    shared.pieces_ = pieces_;
    shared.owners_ = owners_;
    shared.size_ = size_;
    return shared;
  }

  int64_t size() const { return size_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::vector<Piece> pieces_;
  std::vector<std::shared_ptr<const void>> owners_;
  int64_t size_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_PAYLOAD_H_
