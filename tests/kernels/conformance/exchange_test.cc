// What every backend's codecs write and read, against common/codec's own.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "common/codec/decoder.h"
#include "common/codec/encoder.h"
#include "common/codec/error_feedback.h"
#include "common/codec/stochastic_entry.h"
#include "common/codec/tau.h"
#include "common/codec/threshold_payload.h"
#include "common/keyset/entry_set.h"
#include "kernels/place_ranks.h"
#include "tests/common/codec/all_codecs.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

constexpr PayloadRandom kRandom{0x123456789abcdefULL, 0x30002000000007ULL};

// Rows of many lengths, and a vector, of which qsgd leaves one parameter as it is.
std::vector<ModelShape> Shapes() {
  return {ShapeWith({{13, 801}, {10, 20}, {11000, 1}}),
          ShapeWith({{3, 4096}, {2, 5001}, {10003, 1}}), ShapeWith({{1, 1}}),
          ShapeWith({{40, 257}, {1, 10001}, {20, 512}}),
          // Around the lengths at which rows are coded in another way.
          ShapeWith({{3, 513}, {2, 2048}, {2, 2049}, {2, 8192}, {2, 8193}}),
          // Whose last entries are one, two or three behind a multiple of four.
          ShapeWith({{2, 1022}, {2, 1023}, {2, 2046}, {2, 3071}, {2, 4090}, {2, 5631}, {2, 7685}})};
}

// Of many magnitudes, with rows of zeros and of what is next to nothing.
std::vector<float> Entries(int64_t n, unsigned seed) {
  std::vector<float> values = RandomValues(n, seed);
  for (int64_t i = 0; i < n; ++i) {
    values[i] = std::ldexp(values[i], -static_cast<int>(i / 700 % 40));
    if (i / 1500 % 7 == 3) values[i] = 0;
    if (i / 1500 % 7 == 5) values[i] *= 0x1p-120f;
  }
  return values;
}

// Those of the table that have a device half, as others are coded on the host.
std::vector<Codec> OnDevices() {
  std::vector<Codec> codecs;
  for (const Codec& codec : AllCodecs()) {
    if (codec->traits().on_devices) codecs.push_back(codec);
  }
  return codecs;
}

std::vector<char> Written(const CodedKeys& keys, const std::vector<float>& entries) {
  std::vector<char> bytes(keys.bytes());
  Encoder encoder(keys, kRandom);
  encoder.Encode(entries.data(), entries.size(), bytes.data(), bytes.size());
  return bytes;
}

// All segments of a payload that begins `shift` bytes behind an aligned address.
void Encode(Backend& backend, const CodedKeys& keys, const float* entries, float* residual,
            char* out) {
  for (const Segment& segment : keys.segments()) {
    backend.exchange().Encode(segment, kRandom, entries, residual, out);
    entries += segment.entries;
    if (residual != nullptr) residual += segment.entries;
    out += segment.bytes();
  }
}

std::vector<float> AllOf(const Residual& residual, const ModelShape& shape) {
  std::vector<float> all;
  for (size_t p = 0; p < shape.parameters.size(); ++p) {
    all.insert(all.end(), residual.of(p).begin(), residual.of(p).end());
  }
  return all;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("a device writes and reads the bytes that the codec says", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  const int64_t shift = GENERATE(0, 1, 2, 4);
  for (const ModelShape& shape : Shapes()) {
    const std::vector<float> entries = Entries(shape.size, 1);
    const DeviceArray<float> from(*backend, entries, shift), back(*backend, shape.size, shift);
    for (const Codec& codec : Sampled(OnDevices())) {
      CAPTURE(codec->name(), shape.size, shift);
      const CodedKeys keys(codec, SlicesOf(shape, ShardId(0), 1), shape);
      const DeviceArray<char> bytes(*backend, keys.bytes(), shift);
      Encode(*backend, keys, from.data(), nullptr, bytes.data());
      const std::vector<char> want = Written(keys, entries);
      REQUIRE(bytes.Read() == want);
      const char* in = bytes.data();
      float* out = back.data();
      for (const Segment& segment : keys.segments()) {
        backend->exchange().Decode(segment, in, out);
        in += segment.bytes();
        out += segment.entries;
      }
      std::vector<float> seen(shape.size);
      Decoder(keys).Assign(want.data(), want.size(), 1, seen.data(), shape.size);
      REQUIRE(SameBits(back.Read(), seen));
    }
  }
}

TEST_CASE("what a device's codec loses of one update is in the next one", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  const int64_t shift = GENERATE(0, 3);
  for (const ModelShape& shape : Shapes()) {
    const ShardSlices slices = SlicesOf(shape, ShardId(0), 1);
    for (const Codec& codec : Sampled(OnDevices())) {
      CAPTURE(codec->name(), shape.size, shift);
      const CodedKeys keys(codec, slices, shape);
      Residual residual(shape);
      const DeviceArray<float> held(*backend, shape.size, shift);
      for (unsigned round = 0; round < 3; ++round) {
        const std::vector<float> entries = Entries(shape.size, round);
        std::vector<char> want(keys.bytes());
        Encoder encoder(keys, kRandom);
        ResidualCursor cursor(&residual, slices, nullptr);
        FeedbackEncoder(&encoder, &cursor)
            .Encode(entries.data(), entries.size(), want.data(), want.size());
        const DeviceArray<float> from(*backend, entries, 2 * shift);
        const DeviceArray<char> bytes(*backend, keys.bytes(), shift);
        Encode(*backend, keys, from.data(), held.data(), bytes.data());
        REQUIRE(bytes.Read() == want);
        REQUIRE(SameBits(held.Read(), AllOf(residual, shape)));
      }
    }
  }
}

TEST_CASE("rows of what is too small for a code are written as nothing, and held back",
          "[exchange]") {
  const auto backend = BackendUnderTest(1);
  const ModelShape shape = ShapeWith({{2, 40}, {2, 1000}, {2, 3000}, {2, 8200}});
  const ShardSlices slices = SlicesOf(shape, ShardId(0), 1);
  for (const float scale : {0.0f, 0x1p-110f}) {
    std::vector<float> entries = RandomValues(shape.size, 1);
    for (float& entry : entries) entry *= scale;
    for (const Codec& codec : OnDevices()) {
      CAPTURE(codec->name(), scale);
      const CodedKeys keys(codec, slices, shape);
      Residual residual(shape);
      Encoder encoder(keys, kRandom);
      ResidualCursor cursor(&residual, slices, nullptr);
      std::vector<char> want(keys.bytes());
      FeedbackEncoder(&encoder, &cursor)
          .Encode(entries.data(), entries.size(), want.data(), want.size());
      const DeviceArray<float> from(*backend, entries), held(*backend, shape.size);
      const DeviceArray<char> bytes(*backend, keys.bytes());
      Encode(*backend, keys, from.data(), held.data(), bytes.data());
      REQUIRE(bytes.Read() == want);
      REQUIRE(SameBits(held.Read(), AllOf(residual, shape)));
    }
  }
}

// Once in 65536 entries the first 16 bits do not decide; here they never do.
TEST_CASE("where its random number is an entry's own, the next one decides", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  constexpr int64_t kRows = 2, kRow = 5000;
  const ModelShape shape = ShapeWith({{kRows, kRow}});
  for (const Codec& codec : {QsgdCodec(8), QsgdCodec(4, 1 << 20)}) {
    CAPTURE(codec->name());
    const CodedKeys keys(codec, SlicesOf(shape, ShardId(0), 1), shape);
    const Segment& segment = keys.segments().front();
    const float levels = segment.divisor;
    std::vector<float> entries(shape.size);
    int64_t undecided = 0;
    const int64_t row_buckets = (kRow + segment.bucket - 1) / segment.bucket;
    for (int64_t i = 0; i < shape.size; ++i) {
      const int64_t bucket = i / kRow * row_buckets + i % kRow / segment.bucket;
      const BucketRandom random{kRandom, static_cast<uint64_t>(bucket)};
      const int64_t within = i % kRow % segment.bucket, place = within % kRandomGroup;
      const PhiloxBlock words = RoundingWords(random, within / kRandomGroup, place % kRandomLanes);
      const int64_t half = place / kRandomLanes;
      const auto r = static_cast<float>(words[half / 2] >> 16 * (half % 2) & 0xffff);
      // A bucket's first entry is its largest.
      entries[i] = within == 0 ? 1.0f : (r + 0.5f) / 65536.0f / levels;
      undecided += SplitOf(entries[i], levels, levels).t == static_cast<int32_t>(r);
    }
    REQUIRE(undecided > shape.size / 2);
    REQUIRE(segment.form == &kQsgdForm);
    const DeviceArray<float> from(*backend, entries);
    const DeviceArray<char> bytes(*backend, keys.bytes());
    Encode(*backend, keys, from.data(), nullptr, bytes.data());
    REQUIRE(bytes.Read() == Written(keys, entries));
  }
}

TEST_CASE("a device's payload shows what is not finite, as the codec's own does", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  const ModelShape shape = ShapeWith({{20, 601}, {11, 1100}});
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> entries = Entries(shape.size, 1);
    entries[700] = entries[19 * 601 + 77] = entries[shape.size - 1] = bad;
    const DeviceArray<float> from(*backend, entries);
    for (const Codec& codec : OnDevices()) {
      CAPTURE(codec->name(), bad);
      const CodedKeys keys(codec, SlicesOf(shape, ShardId(0), 1), shape);
      const DeviceArray<char> bytes(*backend, keys.bytes());
      Encode(*backend, keys, from.data(), nullptr, bytes.data());
      REQUIRE(bytes.Read() == Written(keys, entries));
    }
  }
}

TEST_CASE("a part of a segment without headers is written as in the whole", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  for (const int64_t n : Sizes()) {
    const std::vector<float> entries = Entries(n, 1);
    const DeviceArray<float> from(*backend, entries, 1);
    for (const Codec& codec : OnDevices()) {
      if (!IsPlain(codec)) continue;
      const CodedKeys keys = CodedKeys::Plain(codec, n);
      const DeviceArray<char> bytes(*backend, keys.bytes(), 2);
      const int64_t first = n / 3;
      const std::pair<int64_t, int64_t> parts[] = {{0, first}, {first, n - first}};
      for (const auto& [begin, count] : parts) {
        if (n == 0) continue;
        Segment part = keys.segments().front();
        part.entries = count;
        backend->exchange().Encode(part, kRandom, from.data() + begin, nullptr,
                                   bytes.data() + begin * part.bits / 8);
      }
      CAPTURE(n, codec->name());
      REQUIRE(bytes.Read() == Written(keys, entries));
    }
  }
}

TEST_CASE("a device finds the marks of a threshold, and holds back the rest", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  const int64_t shift = GENERATE(0, 1);
  const float tau = GENERATE(0.5f, 1.5f, 0x1p-60f, 9.0f);
  for (const int64_t n : {0, 1, 31, 1027, 2050, 3074, 4095, 4096, 4099, 50001}) {
    CAPTURE(n, tau, shift);
    const std::vector<float> update = Entries(n, 1);
    std::vector<float> held = RandomValues(n, 2, 0.5f);
    const DeviceArray<float> from(*backend, update, shift), residual(*backend, held, 2 * shift);
    const int64_t tiles = ThresholdTiles(n);
    const DeviceArray<ThresholdTile> found(*backend, tiles);
    const DeviceArray<uint32_t> bits(*backend, tiles * kTileWords);
    ExchangeKernel& exchange = backend->exchange();
    exchange.FindMarks(n, tau, from.data(), residual.data(), found.data(), bits.data());
    const std::vector<ThresholdTile> by_tile = found.Read();
    std::vector<int64_t> begin;
    int64_t count = 0;
    for (const ThresholdTile& tile : by_tile) {
      begin.push_back(count);
      count += tile.marks;
    }
    const DeviceArray<int64_t> starts(*backend, begin);
    const DeviceArray<uint32_t> marks(*backend, count);
    exchange.ListMarks(tiles, bits.data(), starts.data(), marks.data());
    const std::vector<uint32_t> listed = marks.Read();
    ThresholdEncoder want(tau, false), got(tau, false);
    want.Encode(update.data(), held.data(), n);
    for (int64_t t = 0; t < tiles; ++t) {
      got.Add({by_tile[t].marks, by_tile[t].largest}, listed.data() + begin[t],
              std::min(kThresholdRun, n - t * kThresholdRun));
    }
    REQUIRE(got.Finish() == want.Finish());
    REQUIRE(SameBits(residual.Read(), held));
  }
}

TEST_CASE("a device writes the largest of each chunk, and holds back the rest", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  const int64_t shift = GENERATE(0, 1);
  const int64_t k = GENERATE(1, 5, 64, 4096);
  for (const int64_t n : {1, 31, 1027, 4095, 4096, 4099, 20001}) {
    CAPTURE(k, n, shift);
    std::vector<float> values = Entries(n, 1);
    // Magnitudes of which some are equal, and now and then one that is not finite.
    for (int64_t i = 0; i < n; i += 5) values[i] = std::copysign(0.25f, values[i]);
    if (n == 4099) values[4097] = -std::numeric_limits<float>::infinity();
    const Codec topk = TopkCodec({k});
    const SelectiveCodec& codec = *topk->selective();
    std::vector<float> held(n);
    for (int64_t i = 0; i < n; ++i) held[i] = std::copysign(0.0f, values[i]);
    const auto encoder = codec.NewSelector()->NewEncoder();
    encoder->Encode(values.data(), held.data(), n);
    const DeviceArray<float> sums(*backend, values, shift);
    const DeviceArray<char> bytes(*backend, codec.BytesMax(n), 3 * shift);
    backend->exchange().EncodeLargest(n, k, sums.data(), bytes.data());
    REQUIRE(bytes.Read() == encoder->Finish());
    REQUIRE(SameBits(sums.Read(), held));
  }
}

TEST_CASE("a threshold's samples are those of the host", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  for (const int64_t n : Sizes()) {
    for (const int64_t wanted : {1, 7, 1000}) {
      const std::vector<float> update = Entries(n, 1), held = RandomValues(n, 2);
      std::vector<float> want;
      SampleMagnitudes(update.data(), held.data(), n, wanted, &want);
      const DeviceArray<float> from(*backend, update, 1), residual(*backend, held),
          got(*backend, want.size());
      backend->exchange().SampleMagnitudes(n, SampleDistance(n, wanted), from.data(),
                                           residual.data(), got.data());
      REQUIRE(SameBits(got.Read(), want));
    }
  }
}

TEST_CASE("entries of a set are taken out and put back, in any part of its places", "[exchange]") {
  const auto backend = BackendUnderTest(1);
  // A share of the places, 0 for none and 1 for all, of so many.
  const double share = GENERATE(0.0, 0.003, 0.2, 1.0);
  for (const int64_t size :
       {int64_t{1}, int64_t{64}, int64_t{257}, int64_t{5000}, int64_t{70001}}) {
    std::vector<uint64_t> words((size + 63) / 64);
    std::mt19937 random(3);
    for (int64_t i = 0; i < size; ++i) {
      if (random() < share * 4294967296.0) words[i / 64] |= uint64_t{1} << i % 64;
    }
    const EntrySet set(size, words);
    const PlaceRanks ranks(words);
    for (int64_t i = 0; i < size; i += 32) {
      const int64_t group = i / PlaceSet::kRankPlaces;
      const uint64_t step = ranks.steps[group] >> i / 32 % 8 * 8 & 255;
      REQUIRE(ranks.ranks[group] + static_cast<int64_t>(step) == set.CountIn(0, i));
    }
    const DeviceArray<uint64_t> device_words(*backend, words), steps(*backend, ranks.steps);
    const DeviceArray<int64_t> device_ranks(*backend, ranks.ranks);
    const PlaceSet places{device_words.data(), device_ranks.data(), steps.data()};
    const std::vector<float> all = RandomValues(size, 1);
    const std::vector<float> other = RandomValues(size, 2);
    const std::pair<int64_t, int64_t> ranges[] = {
        {0, size}, {0, 0}, {size / 2, size}, {std::min<int64_t>(1, size), size - size / 3}};
    for (const auto& [begin, end] : ranges) {
      if (begin > end) continue;
      CAPTURE(share, size, begin, end);
      const int64_t before = set.CountIn(0, begin), count = set.CountIn(begin, end);
      const std::vector<float> part(all.begin() + begin, all.begin() + end);
      const DeviceArray<float> from(*backend, part, 1), values(*backend, other, 1);
      backend->exchange().Gather(places, begin, end, from.data(), values.data());
      std::vector<float> want = other;
      GatherEntries(set, begin, end, part.data(), want.data() + before);
      REQUIRE(SameBits(values.Read(), want));
      std::vector<float> back(other.begin(), other.begin() + (end - begin));
      const DeviceArray<float> to(*backend, back, 1);
      backend->exchange().Scatter(places, begin, end, values.data(), to.data());
      ScatterEntries(set, begin, end, want.data() + before, back.data());
      REQUIRE(SameBits(to.Read(), back));
      CHECK(count <= end - begin);
    }
  }
}

}  // namespace tessera
