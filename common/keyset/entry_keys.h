// The keys of an EntrySet as bytes, and a name for them.
//
//   bitmap   (size + 7) / 8 bytes: bit i % 8 of byte i / 8 is set where place i is in the set
//   gaps     for each place in ascending order the number of places skipped since the last one, as
//            a protobuf varint: 7 bits a byte, lowest first, the highest bit set but in the last
//
// A sender takes whichever is shorter: gaps below one place in eight, roughly. Either is less than
// the four bytes a key that the definition of Slim-DP allows.
#ifndef TESSERA_COMMON_KEYSET_ENTRY_KEYS_H_
#define TESSERA_COMMON_KEYSET_ENTRY_KEYS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/keyset/entry_set.h"

namespace tessera {

enum class KeyForm { kBitmap = 0, kGaps = 1 };

struct EncodedKeys {
  KeyForm form = KeyForm::kBitmap;
  std::string bytes;
};

EncodedKeys EncodeKeys(const EntrySet& set);

// Bytes of the longest that EncodeKeys makes for `size` places.
inline int64_t KeyBytesMax(int64_t size) { return (size + 7) / 8; }

// The set of `size` places that `bytes` are the keys of.
//   kInvalidArgument  they are none: a place beyond the last one, a varint that does not end, bytes
//                     missing or left over, an unknown form
absl::StatusOr<EntrySet> DecodeKeys(int form, absl::string_view bytes, int64_t size);

// What stands for a core's keys in messages: XXH3, 128 bits, seed 0, of the layout hash (u64), the
// number of the core (u64), the number of places (u64) and the keys' bitmap filled up to a multiple
// of 8 bytes, all little-endian.
struct KeySignature {
  uint64_t high = 0;
  uint64_t low = 0;

  friend bool operator==(const KeySignature& a, const KeySignature& b) {
    return a.high == b.high && a.low == b.low;
  }
  friend bool operator!=(const KeySignature& a, const KeySignature& b) { return !(a == b); }
};

KeySignature SignatureOf(uint64_t layout_hash, uint64_t core, const EntrySet& keys);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_ENTRY_KEYS_H_
