// Numbers of every kind and runs of many lengths, for loops that exist for several instruction sets.
#ifndef TESSERA_TESTS_COMMON_CODEC_PATHS_H_
#define TESSERA_TESTS_COMMON_CODEC_PATHS_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/common/codec/coded_bytes.h"

namespace tessera {

inline const int64_t kSizes[] = {0,  1,  2,  3,  7,   8,   9,   15,   16,
                                 17, 31, 33, 63, 127, 128, 129, 1000, 4099};

// Numbers of every size, and every kind that is no number.
inline std::vector<float> AllKinds(int64_t count, int seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const uint32_t bits = random();
    std::memcpy(&value, &bits, sizeof(value));
    if (random() % 8 == 0) value = 0;
    if (random() % 4 == 0) value = static_cast<float>(static_cast<int32_t>(random())) * 1e-5f;
  }
  return values;
}

// Runs f(path, out) on each path and wants the bytes that the scalar one leaves behind at `out`, which is misaligned.
template <typename F>
void SameBytesOnAllPaths(int64_t bytes, const F& f) {
  std::vector<char> wanted(bytes + 8, 'x');
  f(CodecPath::kScalar, wanted.data() + 1);
  for (const CodecPath path : PathsHere()) {
    std::vector<char> got(bytes + 8, 'x');
    f(path, got.data() + 1);
    REQUIRE(got == wanted);
  }
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CODEC_PATHS_H_
