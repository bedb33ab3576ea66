#include "common/keyset/significance.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tessera {
namespace {

std::vector<GatherPath> Paths() {
  std::vector<GatherPath> paths = {GatherPath::kScalar};
  if (BestGatherPath() >= GatherPath::kAvx2) paths.push_back(GatherPath::kAvx2);
  if (BestGatherPath() >= GatherPath::kAvx512) paths.push_back(GatherPath::kAvx512);
  return paths;
}

uint32_t Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

struct Arrays {
  explicit Arrays(int64_t size) : w(size), g(size) {
    std::mt19937_64 random(static_cast<uint64_t>(size));
    for (float& x : w) x = std::normal_distribution<float>(0, 0.05f)(random);
    for (float& x : g) x = std::normal_distribution<float>(0, 0.5f)(random);
    if (size > 5) {
      w[1] = std::numeric_limits<float>::infinity();
      w[2] = std::numeric_limits<float>::quiet_NaN();
      w[3] = -0.0f;
      g[4] = -std::numeric_limits<float>::infinity();
    }
  }
  std::vector<float> w;
  std::vector<float> g;
};

TEST_CASE("significance is |w| + c |g|, and nothing is above infinite", "[significance]") {
  const Arrays a(1000);
  std::vector<uint32_t> out(1000);
  Significances({a.w.data(), a.g.data(), 1000}, 0.1f, out.data());
  for (int i = 0; i < 1000; ++i) {
    const float s = std::fabs(a.w[i]) + 0.1f * std::fabs(a.g[i]);
    CHECK(out[i] == (std::isfinite(s) ? Bits(s) : kSignificanceMax));
  }
  Significances({a.w.data(), nullptr, 1000}, 0.1f, out.data());
  CHECK(out[0] == Bits(std::fabs(a.w[0])));
  CHECK(out[1] == kSignificanceMax);
  CHECK(out[2] == kSignificanceMax);
  CHECK(out[3] == 0);
  // An infinite gradient of no weight is no matter.
  Significances({a.w.data(), a.g.data(), 1000}, 0, out.data());
  CHECK(out[4] == Bits(std::fabs(a.w[4])));
}

TEST_CASE("every path counts and splits alike", "[significance]") {
  for (const int64_t size : {0, 1, 63, 64, 65, 5000, 20001}) {
    const Arrays a(size);
    const SignificanceRun run{a.w.data(), a.g.data(), size};
    std::vector<uint32_t> s(size);
    Significances(run, 0.1f, s.data());
    const uint32_t middle = Bits(0.05f) >> 16;
    for (const BucketRange& range :
         {BucketRange{middle, middle}, BucketRange{middle - 100, middle + 3}, BucketRange(),
          BucketRange{kSignificanceMax >> 16, kSignificanceMax >> 16}, BucketRange{0, 0}}) {
      for (const int64_t first : {0, 5, 64, 100}) {
        for (const GatherPath path : Paths()) {
          CAPTURE(size, range.first, range.last, first, static_cast<int>(path));
          std::vector<uint64_t> above((first + size + 63) / 64), within = above;
          std::vector<uint32_t> values = {7}, wanted = {7};
          const uint64_t above_count =
              SplitAt(range, run, 0.1f, first, above.data(), within.data(), &values, path);
          const auto has = [&](const std::vector<uint64_t>& words, int64_t i) {
            return (words[(first + i) / 64] >> (first + i) % 64 & 1) != 0;
          };
          uint64_t above_wanted = 0;
          for (int64_t i = 0; i < size; ++i) {
            const uint32_t bucket = s[i] >> 16;
            const bool is_within = bucket >= range.first && bucket <= range.last;
            REQUIRE(has(above, i) == (bucket > range.last));
            REQUIRE(has(within, i) == is_within);
            above_wanted += bucket > range.last;
            if (is_within) wanted.push_back(s[i]);
          }
          REQUIRE(above_count == above_wanted);
          REQUIRE(values == wanted);
          for (int64_t i = 0; i < first; ++i) REQUIRE((above[i / 64] >> i % 64 & 1) == 0);
        }
      }
    }
  }
}

TEST_CASE("a sample's range holds the threshold of nearly all models", "[significance]") {
  std::mt19937_64 random(1);
  std::vector<float> w(300000);
  for (float& x : w) x = std::normal_distribution<float>(0, 1)(random);
  std::vector<uint64_t> all(kCoarseBuckets), sample(kCoarseBuckets);
  const int64_t stride = SampleStride(static_cast<int64_t>(w.size()));
  CHECK(stride == 5);
  for (size_t i = 0; i < w.size(); ++i) {
    const uint32_t bucket = SignificanceOf(w[i], 0, 0) >> 16;
    ++all[bucket];
    sample[bucket] += i % static_cast<size_t>(stride) == 0;
  }
  for (const uint64_t wanted : {0, 1, 10, 3000, 60000, 299999, 300000}) {
    const BucketRange range = RangeOf(sample, wanted, w.size());
    uint64_t above = 0, within = 0;
    for (uint32_t i = 0; i < kCoarseBuckets; ++i) {
      above += i > range.last ? all[i] : 0;
      within += i >= range.first && i <= range.last ? all[i] : 0;
    }
    CAPTURE(wanted, range.first, range.last, above, within);
    CHECK(above <= wanted);
    CHECK(above + within >= wanted);
    if (wanted == 3000) CHECK(within < 3000);
  }
}

TEST_CASE("the threshold is the last bucket that is needed", "[significance]") {
  const std::vector<uint64_t> counts = {4, 0, 3, 2};
  const auto at = [&](uint64_t wanted) {
    const Threshold t = FindThreshold(counts, wanted);
    return std::make_pair(t.bucket, t.above);
  };
  CHECK(at(0) == std::make_pair(3u, uint64_t{0}));
  CHECK(at(2) == std::make_pair(3u, uint64_t{0}));
  CHECK(at(3) == std::make_pair(2u, uint64_t{2}));
  CHECK(at(5) == std::make_pair(2u, uint64_t{2}));
  CHECK(at(6) == std::make_pair(0u, uint64_t{5}));
  CHECK(at(99) == std::make_pair(0u, uint64_t{5}));
}

TEST_CASE("sums of magnitudes are those of all entries", "[significance]") {
  std::vector<float> w(10007, -0.5f), g(10007, 0.25f);
  MagnitudeSums sums;
  AddMagnitudes({w.data(), g.data(), 10007}, &sums);
  AddMagnitudes({w.data(), nullptr, 3}, &sums);
  CHECK(sums.w == 10010 * 0.5);
  CHECK(sums.g == 10007 * 0.25);
}

}  // namespace
}  // namespace tessera
