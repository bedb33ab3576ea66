// Bits of a word, where no instruction may be taken for granted.
#ifndef TESSERA_COMMON_KEYSET_WORD_BITS_H_
#define TESSERA_COMMON_KEYSET_WORD_BITS_H_

#include <cstdint>

namespace tessera {

// How many are set. Without the instruction the compiler would call a function with a table.
inline int64_t CountBits(uint64_t word) {
  word -= word >> 1 & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<int64_t>(word * 0x0101010101010101u >> 56);
}

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_WORD_BITS_H_
