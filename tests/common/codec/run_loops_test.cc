#include "common/codec/run_loops.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/codec/coded_keys.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

const int64_t kSizes[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 127, 128, 129, 1000, 4099};

// Numbers of every size, and every kind that is no number.
std::vector<float> AllKinds(int64_t count, int seed) {
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

// Runs `f` on each path and wants the bytes that the scalar one leaves behind.
template <typename F>
void SameOnAllPaths(int64_t bytes, const F& f) {
  std::vector<char> wanted(bytes + 8, 'x');
  f(LoopsOf(CodecPath::kScalar), wanted.data() + 1);
  for (const CodecPath path : PathsHere()) {
    std::vector<char> got(bytes + 8, 'x');
    f(LoopsOf(path), got.data() + 1);
    REQUIRE(got == wanted);
  }
}

TEST_CASE("all paths write the same bytes", "[codec][paths]") {
  for (const int64_t size : kSizes) {
    for (int offset = 0; offset < 3; ++offset) {
      const std::vector<float> any = AllKinds(size + offset, static_cast<int>(size));
      const std::vector<float> near_one = Normal(size + offset, 3);
      for (int form = 0; form < 4; ++form) {
        const bool is_code = form == static_cast<int>(EntryForm::kCode);
        const float* const in = (is_code ? near_one : any).data() + offset;
        const int64_t bytes = form == 0 ? 4 * size : is_code ? size : 2 * size;
        SameOnAllPaths(bytes, [&](const RunLoops& loops, char* out) {
          loops.encode[form](in, size, 20.0f, out);
        });
      }
    }
  }
}

TEST_CASE("all paths read the same numbers", "[codec][paths]") {
  for (const int64_t size : kSizes) {
    const std::vector<float> bytes = AllKinds(size + 1, 5);
    for (int form = 0; form < 4; ++form) {
      for (int offset = 0; offset < 4; ++offset) {
        const char* const in = reinterpret_cast<const char*>(bytes.data()) + offset;
        SameOnAllPaths(4 * size, [&](const RunLoops& loops, char* out) {
          std::vector<float> sum(size, 1);
          loops.assign[form](in, size, 0.1f, 0.3f, sum.data());
          loops.accumulate[form](in, size, 0.1f, 0.7f, sum.data());
          // A NaN's bits depend on which of two was first.
          for (float& x : sum) x = x == x ? x : 0;
          if (size > 0) std::memcpy(out, sum.data(), 4 * size);
        });
      }
    }
  }
}

TEST_CASE("all paths agree on what is not finite, largest, and the sum of squares",
          "[codec][paths]") {
  for (const int64_t size : kSizes) {
    for (int seed = 0; seed < 20; ++seed) {
      std::vector<float> values = seed % 2 == 0 ? Normal(size, seed) : AllKinds(size, seed);
      const char* const bytes = reinterpret_cast<const char*>(values.data());
      const RunLoops& scalar = LoopsOf(CodecPath::kScalar);
      for (const CodecPath path : PathsHere()) {
        const RunLoops& loops = LoopsOf(path);
        for (int form = 0; form < 3; ++form) {
          REQUIRE(loops.any_not_finite[form](bytes, size) ==
                  scalar.any_not_finite[form](bytes, size));
        }
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
    LoopsOf(CodecPath::kScalar)
        .round_at_random(values.data(), values.size(), inverse, levels, random, 0, wanted.data());
    for (const CodecPath path : PathsHere()) {
      std::vector<int8_t> got(values.size());
      LoopsOf(path).round_at_random(values.data(), values.size(), inverse, levels, random, 0,
                                    got.data());
      REQUIRE(got == wanted);
    }
  }
}

TEST_CASE("a bucket is rounded the same in parts and at any length", "[codec][paths][stochastic]") {
  const std::vector<float> values = Normal(1000, 11);
  const BucketRandom random{{99, 5}, 17};
  std::vector<int8_t> wanted(values.size());
  LoopsOf(CodecPath::kScalar)
      .round_at_random(values.data(), 1000, 20, 127, random, 0, wanted.data());
  for (const CodecPath path : PathsHere()) {
    for (const int64_t size : kSizes) {
      if (size > 1000) continue;
      std::vector<int8_t> got(size + 1, 99);
      LoopsOf(path).round_at_random(values.data(), size, 20, 127, random, 0, got.data());
      REQUIRE(std::equal(got.begin(), got.end() - 1, wanted.begin()));
      REQUIRE(got.back() == 99);
    }
    for (int64_t first = 0; first < 1000; first += 128) {
      std::vector<int8_t> got(1000 - first);
      LoopsOf(path).round_at_random(values.data() + first, 1000 - first, 20, 127, random, first,
                                    got.data());
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
      SameOnAllPaths(bytes, [&](const RunLoops& loops, char* out) {
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
  LoopsOf(CodecPath::kScalar).pack(codes, 5, 2, bytes);
  CHECK(static_cast<unsigned char>(bytes[0]) == 0b01001101);
  CHECK(static_cast<unsigned char>(bytes[1]) == 0b10);
}

TEST_CASE("a code is rounded to the nearest integer, a tie to the even one", "[codec][int8]") {
  const float values[] = {0.5f, 1.5f, -0.5f, -1.5f, 126.6f, -127.0f, 0.49f};
  const int8_t wanted[] = {0, 2, 0, -2, 127, -127, 0};
  for (const CodecPath path : PathsHere()) {
    char codes[7];
    LoopsOf(path).encode[static_cast<int>(EntryForm::kCode)](values, 7, 1, codes);
    CHECK(std::memcmp(codes, wanted, 7) == 0);
  }
}

}  // namespace
}  // namespace tessera
