#include "common/codec/bucket_loops.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/codec/segment.h"
#include "tests/common/codec/coded_bytes.h"
#include "tests/common/codec/paths.h"

namespace tessera {
namespace {

// Runs `f` on each path and wants the bytes that the scalar one leaves behind.
template <typename F>
void SameOnAllPaths(int64_t bytes, const F& f) {
  SameBytesOnAllPaths(bytes, [&](CodecPath path, char* out) { f(BucketLoopsOf(path), out); });
}

TEST_CASE("all paths round to the same nearest codes", "[codec][paths]") {
  for (const int64_t size : kSizes) {
    const std::vector<float> values = Normal(size + 1, 3);
    for (int offset = 0; offset < 2; ++offset) {
      SameOnAllPaths(size, [&](const BucketLoops& loops, char* out) {
        loops.round_to_nearest(values.data() + offset, size, 20.0f, out);
      });
    }
  }
}

TEST_CASE("all paths agree on what is largest, and the sum of squares", "[codec][paths]") {
  for (const int64_t size : kSizes) {
    for (int seed = 0; seed < 20; ++seed) {
      std::vector<float> values = seed % 2 == 0 ? Normal(size, seed) : AllKinds(size, seed);
      const BucketLoops& scalar = BucketLoopsOf(CodecPath::kScalar);
      for (const CodecPath path : PathsHere()) {
        const BucketLoops& loops = BucketLoopsOf(path);
        REQUIRE(loops.largest(values.data(), size) == scalar.largest(values.data(), size));
        const double a = loops.square_sum(values.data(), size);
        const double b = scalar.square_sum(values.data(), size);
        REQUIRE((a == b || (a != a && b != b)));
      }
    }
  }
}

TEST_CASE("all paths round the same way, ties of the first random bits included",
          "[codec][paths][stochastic]") {
  // Of a million entries about 15 are tied.
  const std::vector<float> values = Normal(1 << 20, 11);
  for (const int levels : {127, 7, 1}) {
    const float inverse = static_cast<float>(levels) / 6;
    std::vector<int8_t> wanted(values.size());
    const BucketRandom random{{99, 5}, 17};
    BucketLoopsOf(CodecPath::kScalar)
        .round_at_random(values.data(), values.size(), inverse, levels, random, 0, wanted.data());
    for (const CodecPath path : PathsHere()) {
      std::vector<int8_t> got(values.size());
      BucketLoopsOf(path).round_at_random(values.data(), values.size(), inverse, levels, random, 0,
                                          got.data());
      REQUIRE(got == wanted);
    }
  }
}

TEST_CASE("a bucket is rounded the same in parts and at any length", "[codec][paths][stochastic]") {
  const std::vector<float> values = Normal(1000, 11);
  const BucketRandom random{{99, 5}, 17};
  std::vector<int8_t> wanted(values.size());
  BucketLoopsOf(CodecPath::kScalar)
      .round_at_random(values.data(), 1000, 20, 127, random, 0, wanted.data());
  for (const CodecPath path : PathsHere()) {
    for (const int64_t size : kSizes) {
      if (size > 1000) continue;
      std::vector<int8_t> got(size + 1, 99);
      BucketLoopsOf(path).round_at_random(values.data(), size, 20, 127, random, 0, got.data());
      REQUIRE(std::equal(got.begin(), got.end() - 1, wanted.begin()));
      REQUIRE(got.back() == 99);
    }
    for (int64_t first = 0; first < 1000; first += 128) {
      std::vector<int8_t> got(1000 - first);
      BucketLoopsOf(path).round_at_random(values.data() + first, 1000 - first, 20, 127, random,
                                          first, got.data());
      REQUIRE(std::equal(got.begin(), got.end(), wanted.begin() + first));
    }
  }
}

TEST_CASE("codes of 2 to 7 bits come back from their bytes, on all paths", "[codec][pack]") {
  std::mt19937 random(1);
  for (int bits = 2; bits <= 7; ++bits) {
    for (const int64_t size : kSizes) {
      std::vector<int8_t> codes(size);
      for (int8_t& code : codes) {
        code = static_cast<int8_t>(static_cast<int>(random() % (1u << bits)) - (1 << (bits - 1)));
      }
      const int64_t bytes = BytesOfEntries(size, bits);
      SameOnAllPaths(bytes, [&](const BucketLoops& loops, char* out) {
        loops.pack(codes.data(), size, bits, out);
        std::vector<int8_t> back(size);
        loops.unpack(out, size, bits, back.data());
        REQUIRE(back == codes);
      });
    }
  }
}

TEST_CASE("the first code of a byte is in its lowest bits", "[codec][pack]") {
  const int8_t codes[] = {1, -1, 0, 1, -2};
  char bytes[2];
  BucketLoopsOf(CodecPath::kScalar).pack(codes, 5, 2, bytes);
  CHECK(static_cast<unsigned char>(bytes[0]) == 0b01001101);
  CHECK(static_cast<unsigned char>(bytes[1]) == 0b10);
}

TEST_CASE("a code is rounded to the nearest integer, a tie to the even one", "[codec][int8]") {
  const float values[] = {0.5f, 1.5f, -0.5f, -1.5f, 126.6f, -127.0f, 0.49f};
  const int8_t wanted[] = {0, 2, 0, -2, 127, -127, 0};
  for (const CodecPath path : PathsHere()) {
    char codes[7];
    BucketLoopsOf(path).round_to_nearest(values, 7, 1, codes);
    CHECK(std::memcmp(codes, wanted, 7) == 0);
  }
}

}  // namespace
}  // namespace tessera
