// A fuzzer's bytes as a sequence of choices.
//
// Numbers are taken from the front. Where there are no more bytes every choice is 0, so that any input
// is a whole one and a shorter one is a simpler one.
#ifndef TESSERA_TESTS_FUZZ_FUZZ_INPUT_H_
#define TESSERA_TESTS_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

class FuzzInput {
 public:
  // `data` outlives this.
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool ended() const { return rest_.empty(); }
  // All that is left.
  absl::string_view rest() const { return rest_; }

  uint64_t Number(size_t bytes) {
    uint64_t value = 0;
    const size_t taken = std::min(bytes, rest_.size());
    std::memcpy(&value, rest_.data(), taken);
    rest_.remove_prefix(taken);
    return value;
  }
  uint8_t Byte() { return static_cast<uint8_t>(Number(1)); }
  bool Bit() { return (Byte() & 1) != 0; }
  // In [0, end).
  uint64_t Below(uint64_t end) { return Number(end <= 256 ? 1 : 4) % end; }
  // Small numbers often, any number sometimes.
  uint64_t Count() {
    const uint8_t first = Byte();
    return first < 224 ? first : Number(8);
  }
  // A piece whose length comes first, in 2 bytes.
  absl::string_view Piece() {
    const size_t wanted = Number(2);
    const size_t size = std::min(wanted, rest_.size());
    const absl::string_view piece = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return piece;
  }

 private:
  absl::string_view rest_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_FUZZ_FUZZ_INPUT_H_
