#include "common/codec/topk.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/codec/selective_codec.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

// By the definition of topk.h, with a sort of all entries.
std::vector<float> SentOf(const std::vector<float>& m, int64_t k) {
  std::vector<float> sent(m.size());
  for (size_t begin = 0; begin < m.size(); begin += kTopkChunk) {
    const auto n = std::min<int64_t>(kTopkChunk, static_cast<int64_t>(m.size() - begin));
    std::vector<int64_t> places(n);
    std::iota(places.begin(), places.end(), begin);
    std::stable_sort(places.begin(), places.end(),
                     [&](int64_t a, int64_t b) { return std::fabs(m[a]) > std::fabs(m[b]); });
    places.resize((k * n + kTopkChunk - 1) / kTopkChunk);
    std::sort(places.begin(), places.end());
    double sum = 0, sums[2] = {};
    int64_t counts[2] = {};
    for (const int64_t i : places) sum += std::fabs(static_cast<double>(m[i]));
    const auto mean = static_cast<float>(sum / static_cast<double>(places.size()));
    const auto is_high = [&](int64_t i) { return std::fabs(m[i]) >= mean; };
    for (const int64_t i : places) {
      sums[is_high(i)] += std::fabs(static_cast<double>(m[i]));
      ++counts[is_high(i)];
    }
    for (const int64_t i : places) {
      const double level = sums[is_high(i)] / static_cast<double>(counts[is_high(i)]);
      sent[i] = std::copysign(static_cast<float>(level), m[i]);
    }
  }
  return sent;
}

std::vector<char> Written(const Codec& codec, const std::vector<float>& update,
                          std::vector<float>* held, int64_t run) {
  const auto encoder = codec->selective()->NewSelector()->NewEncoder();
  const auto count = static_cast<int64_t>(update.size());
  for (int64_t at = 0; at < count; at += run) {
    encoder->Encode(update.data() + at, held->data() + at, std::min(run, count - at));
  }
  return encoder->Finish();
}

std::vector<float> Seen(const Codec& codec, const Payload& payload, int64_t entries) {
  std::vector<float> seen(entries);
  codec->selective()->NewReader(payload)->Assign(entries, 1, seen.data());
  return seen;
}

std::string ErrorOf(const Codec& codec, const std::vector<char>& bytes, int64_t entries) {
  const absl::Status status = codec->selective()->Check(
      Cut(bytes, {std::min<int64_t>(5, static_cast<int64_t>(bytes.size()))}), entries);
  CHECK((status.ok() || status.code() == absl::StatusCode::kInvalidArgument));
  return std::string(status.message());
}

TEST_CASE("the largest of each chunk are sent as its levels, and the rest is held back",
          "[codec][topk]") {
  for (const int64_t k : {1, 3, 64, 500, 4096}) {
    const Codec codec = TopkCodec({k});
    for (const int64_t n : {1, 2, 63, 64, 65, 4095, 4096, 4097, 8192, 20001}) {
      CAPTURE(k, n);
      std::vector<float> update = Normal(n, 1), held = Normal(n, 2), sums(n);
      // Equal magnitudes, of which the first are sent, and zeros of either sign.
      for (int64_t i = 0; i < n; i += 3) update[i] = std::copysign(1.0f, update[i]), held[i] = 0;
      for (int64_t i = 1; i < n; i += 7) update[i] = held[i] = i % 2 == 0 ? 0.0f : -0.0f;
      for (int64_t i = 0; i < n; ++i) sums[i] = update[i] + held[i];
      const std::vector<float> want = SentOf(sums, k);
      std::vector<float> other = held;
      const std::vector<char> bytes = Written(codec, update, &held, n);
      CHECK(static_cast<int64_t>(bytes.size()) == codec->selective()->Forecast(n).bytes);
      CHECK(ErrorOf(codec, bytes, n).empty());
      const std::vector<float> seen = Seen(codec, Cut(bytes, {1, 9}), n);
      REQUIRE(seen == want);
      for (int64_t i = 0; i < n; ++i) REQUIRE(held[i] == sums[i] - seen[i]);
      // However the entries came, as the slices of a shard have any size.
      REQUIRE(Written(codec, update, &other, 37) == bytes);
      REQUIRE(SameBits(other, held));
    }
  }
}

TEST_CASE("a hundredth of f32's bytes and less are sent at the default", "[codec][topk]") {
  CHECK(TopkCodec()->selective()->Forecast(1 << 20).bytes == 256 * 120);
  CHECK(100 * 120 < 4 * kTopkChunk);
}

TEST_CASE("magnitudes of any size have levels of their size", "[codec][topk]") {
  const Codec codec = TopkCodec({4});
  const float largest = std::numeric_limits<float>::max();
  for (const float size : {largest, 1e-45f, 1e-38f}) {
    const std::vector<float> update(kTopkChunk, -size);
    std::vector<float> held(kTopkChunk);
    const std::vector<char> bytes = Written(codec, update, &held, kTopkChunk);
    REQUIRE(ErrorOf(codec, bytes, kTopkChunk).empty());
    const std::vector<float> seen = Seen(codec, Cut(bytes, {}), kTopkChunk);
    for (int i = 0; i < 5; ++i) CHECK(seen[i] == (i < 4 ? -size : 0));
    CHECK(held[3] == 0);
    CHECK(held[4] == -size);
  }
}

TEST_CASE("what is not finite is refused, and stays with the sender", "[codec][topk]") {
  const Codec codec = TopkCodec({2});
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> update(2 * kTopkChunk, 1.0f), held(2 * kTopkChunk);
    update[kTopkChunk + 77] = bad;
    const std::vector<char> bytes = Written(codec, update, &held, 1000);
    CHECK(ErrorOf(codec, bytes, 2 * kTopkChunk) ==
          "topk: chunk 1: levels are nan and nan, want finite numbers of at least 0, the second no "
          "less than the first; the training diverged, try a lower learning rate");
    CHECK(SameBits({held[kTopkChunk + 77]}, {bad}));
    CHECK(held[kTopkChunk] == 1);
  }
}

TEST_CASE("bytes that no sender wrote are refused with what is wrong", "[codec][topk]") {
  const Codec codec = TopkCodec({3});
  std::vector<float> held(kTopkChunk + 2000);
  const auto n = static_cast<int64_t>(held.size());
  const std::vector<char> good = Written(codec, Normal(n, 4), &held, n);
  REQUIRE(good.size() == 14 + 12);
  const auto with = [&](size_t at, std::vector<int> bytes) {
    std::vector<char> changed = good;
    for (const int byte : bytes) changed[at++] = static_cast<char>(byte);
    return ErrorOf(codec, changed, n);
  };
  std::vector<char> cut = good;
  cut.pop_back();
  CHECK(ErrorOf(codec, cut, n) ==
        "topk: payload is 25 bytes, want 26, which 3 of each 4096 of 6096 entries take");
  CHECK(ErrorOf(codec, {}, 1) ==
        "topk: payload is 0 bytes, want 10, which 3 of each 4096 of 1 entries take");
  CHECK(ErrorOf(codec, {}, 0).empty());
  // low is 2 and high 1.
  CHECK(absl::StartsWith(with(0, {0, 0, 0, 64, 0, 0, 128, 63}),
                         "topk: chunk 0: levels are 2 and 1, want"));
  CHECK(absl::StartsWith(with(18, {0, 0, 128, 255}), "topk: chunk 1: levels are"));
  CHECK(with(8, {0, 0, 0, 0, 0, 0}) ==
        "topk: chunk 0: an entry is at 0 behind one at 0, want ascending places");
  // The last chunk's two codes have places of 2000 entries.
  CHECK(with(22, {0, 0, 0xf4, 0x01}) ==
        "topk: chunk 1: an entry is at 2000, want less than its 2000 entries");
  CHECK(with(22, {0, 0x40, 0, 0x10}) == "topk: chunk 1: its last bits are 1, want 0");
}

TEST_CASE("any bytes are read without harm", "[codec][topk]") {
  const Codec codec = TopkCodec({5});
  constexpr int64_t kEntries = 9000;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::vector<char> bytes(seed);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>((seed * 2654435761u + i * 40503u) >> (i % 24));
    }
    const Payload payload = Cut(bytes, {std::min<int64_t>(7, seed)});
    std::vector<float> seen(kEntries);
    const auto reader = codec->selective()->NewReader(payload);
    for (int64_t at = 0; at < kEntries; at += 500) {
      reader->Accumulate(500, 1, seen.data() + at);
    }
    const auto sent = codec->selective()->NewReader(payload);
    int64_t place = 0, last = -1;
    float value = 0;
    while (sent->Take(kEntries, 1, 1, &place, &value) == 1) {
      REQUIRE((place > last && place < kEntries));
      last = place;
    }
  }
}

}  // namespace
}  // namespace tessera
