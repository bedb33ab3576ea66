#include "common/codec/stochastic.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "common/base/philox.h"
#include "common/codec/bucket_loops.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

std::vector<int8_t> Round(const std::vector<float>& values, float inverse, int levels,
                          const BucketRandom& random) {
  std::vector<int8_t> codes(values.size());
  BucketLoopsOf(BestCodecPath())
      .round_at_random(values.data(), values.size(), inverse, levels, random, 0, codes.data());
  return codes;
}

TEST_CASE("an entry is rounded up exactly as its random bits say", "[codec][stochastic]") {
  const BucketRandom random{PayloadRandom::OfPush(7, Rank(2), Exchange(5), ShardId(1)), 3};
  CHECK(random.payload.a == (uint64_t{5} | uint64_t{2} << 32 | uint64_t{1} << 48));
  const std::vector<float> values(300, 0.25f);
  const std::vector<int8_t> codes = Round(values, 1, 7, random);
  for (int i = 0; i < 300; ++i) {
    const uint64_t block = i / 128 * 16 + i % 16;
    const int half = i % 128 / 16;
    const uint32_t word =
        Philox(7, Stream::kRounding, random.payload.a, uint64_t{3} << 24 | block)[half / 2];
    const uint32_t r = half % 2 == 0 ? word & 0xffff : word >> 16;
    CHECK(codes[i] == (r < 16384 ? 1 : 0));
  }
}

TEST_CASE("the mean of many roundings is the value, down to tiny ones", "[codec][stochastic]") {
  // Below 2^-16 the first bits alone cannot tell a value from 0.
  for (const double x : {0.5, 1.25, 3.9, 1e-2, 1e-3, 0x1p-18, -2.7, -0x1p-17}) {
    const int64_t rounds = 1 << 22;
    const std::vector<float> values(1 << 16, static_cast<float>(x));
    int64_t sum = 0;
    for (int64_t i = 0; i < rounds >> 16; ++i) {
      const BucketRandom random{{static_cast<uint64_t>(i), 1}, 0};
      for (const int8_t code : Round(values, 1, 7, random)) sum += code;
    }
    const double p = std::fabs(x) - std::floor(std::fabs(x));
    const double deviation = std::sqrt(p * (1 - p) / rounds);
    CHECK(std::fabs(static_cast<double>(sum) / rounds - x) < 4 * deviation);
  }
}

TEST_CASE("different workers, exchanges, shards and seeds round independently",
          "[codec][stochastic]") {
  const std::vector<float> values(1 << 16, 0.5f);
  const auto codes_of = [&](const PayloadRandom& payload, uint64_t bucket) {
    return Round(values, 1, 1, {payload, bucket});
  };
  const std::vector<int8_t> base =
      codes_of(PayloadRandom::OfPush(7, Rank(0), Exchange(1), ShardId(0)), 0);
  const std::vector<int8_t> others[] = {
      codes_of(PayloadRandom::OfPush(7, Rank(1), Exchange(1), ShardId(0)), 0),
      codes_of(PayloadRandom::OfPush(7, Rank(0), Exchange(2), ShardId(0)), 0),
      codes_of(PayloadRandom::OfPush(7, Rank(0), Exchange(1), ShardId(1)), 0),
      codes_of(PayloadRandom::OfPush(8, Rank(0), Exchange(1), ShardId(0)), 0),
      codes_of(PayloadRandom::OfPush(7, Rank(0), Exchange(1), ShardId(0)), 1),
      codes_of(PayloadRandom::OfValues(7, Version(1), ShardId(0)), 0),
  };
  for (const std::vector<int8_t>& other : others) {
    // Correlation of n independent pairs has deviation 1 / sqrt(n).
    double products = 0;
    for (size_t i = 0; i < base.size(); ++i) products += (base[i] - 0.5) * (other[i] - 0.5) * 4;
    CHECK(std::fabs(products / base.size()) < 4 / std::sqrt(base.size()));
  }
}

TEST_CASE("neighbours in a bucket round independently", "[codec][stochastic]") {
  const std::vector<float> values(1 << 18, 0.5f);
  const std::vector<int8_t> codes = Round(values, 1, 1, {{3, 9}, 0});
  for (const int64_t distance : {1, 8, 16, 32, 64, 128}) {
    double products = 0;
    const int64_t pairs = static_cast<int64_t>(codes.size()) - distance;
    for (int64_t i = 0; i < pairs; ++i) {
      products += (codes[i] - 0.5) * (codes[i + distance] - 0.5) * 4;
    }
    CHECK(std::fabs(products / pairs) < 4 / std::sqrt(pairs));
  }
}

TEST_CASE("no code is beyond the levels", "[codec][stochastic]") {
  const std::vector<float> values(1000, -std::nextafter(3.0f, 4.0f));
  for (const int8_t code : Round(values, 127.0f / 3.0f, 127, {{1, 1}, 1})) CHECK(code == -127);
}

}  // namespace
}  // namespace tessera
