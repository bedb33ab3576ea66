#include "kernels/cpu/exchange.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "common/codec/decoder.h"
#include "common/codec/encoder.h"
#include "common/codec/path.h"
#include "common/codec/selective_codec.h"
#include "common/codec/topk.h"

namespace tessera {
namespace {

// Entries that are coded at a time where buckets have no headers.
constexpr int64_t kTile = 4096;
constexpr int64_t kHalf = kTileWords / 2;

// Calls visit(place, rank) for the places of [begin, end) that are in the set.
template <typename Visit>
void EachPlace(const PlaceSet& set, int64_t begin, int64_t end, Visit visit) {
  if (begin == end) return;
  // The set knows the rank of every kRankPlaces-th place; counting starts at the last such place before `begin`.
  int64_t rank = set.ranks[begin / PlaceSet::kRankPlaces];
  for (int64_t place = begin / PlaceSet::kRankPlaces * PlaceSet::kRankPlaces; place < end;
       ++place) {
    if ((set.words[place / 64] >> place % 64 & 1) == 0) continue;
    if (place >= begin) visit(place, rank);
    ++rank;
  }
}

}  // namespace

void CpuExchange::Encode(const Segment& segment, const PayloadRandom& random, const float* entries,
                         float* residual, char* out) {
  const CodedKeys keys = CodedKeys::OfSegment(segment);
  Encoder encoder(keys, random);
  if (residual == nullptr) {
    encoder.Encode(entries, segment.entries, out, keys.bytes());
    return;
  }
  std::vector<float> sums, decoded;
  int64_t room = keys.bytes();
  while (encoder.left() > 0) {
    // A bucket's scale depends on all its entries, so the encoder must get it whole; other forms come in tiles.
    const Encoder::Ahead ahead = encoder.ahead();
    const int64_t size = ahead.whole ? ahead.entries : std::min(ahead.entries, kTile);
    sums.resize(size);
    decoded.resize(size);
    for (int64_t i = 0; i < size; ++i) sums[i] = residual[i] + entries[i];
    const Encoder::Step step = encoder.Encode(sums.data(), size, out, room, decoded.data());
    TESSERA_CHECK(step.entries == size);
    // Error feedback: what the receiver will not see of this sum is added to the next one.
    for (int64_t i = 0; i < size; ++i) residual[i] = sums[i] - decoded[i];
    entries += size;
    residual += size;
    out += step.bytes;
    room -= step.bytes;
  }
}

void CpuExchange::Decode(const Segment& segment, const char* in, float* entries) {
  const CodedKeys keys = CodedKeys::OfSegment(segment);
  Decoder(keys).Assign(in, keys.bytes(), 1.0f, entries, segment.entries);
}

void CpuExchange::SampleMagnitudes(int64_t entries, int64_t distance, const float* update,
                                   const float* residual, float* magnitudes) {
  for (int64_t i = 0; i < entries; i += distance) {
    *magnitudes++ = std::fabs(update[i] + residual[i]);
  }
}

void CpuExchange::FindMarks(int64_t entries, float tau, const float* update, float* residual,
                            ThresholdTile* tiles, uint32_t* bits) {
  uint32_t marks[kThresholdRun + kThresholdSlack];
  for (int64_t begin = 0; begin < entries; begin += kThresholdRun, bits += kTileWords) {
    const int64_t size = std::min(kThresholdRun, entries - begin);
    const ThresholdRun run =
        RunThreshold(BestCodecPath(), update + begin, residual + begin, size, tau, marks);
    *tiles++ = {static_cast<uint32_t>(run.marks), run.largest};
    std::fill_n(bits, kTileWords, 0u);
    // The first half of a tile's words says which places are sent, the second half which of these are negative.
    for (int64_t i = 0; i < run.marks; ++i) {
      const uint32_t place = marks[i] >> 1;
      bits[place / 32] |= 1u << place % 32;
      bits[kHalf + place / 32] |= (marks[i] & 1u) << place % 32;
    }
  }
}

void CpuExchange::ListMarks(int64_t tiles, const uint32_t* bits, const int64_t* begin,
                            uint32_t* marks) {
  for (int64_t t = 0; t < tiles; ++t, bits += kTileWords) {
    uint32_t* out = marks + begin[t];
    for (uint32_t w = 0; w < kHalf; ++w) {
      for (uint32_t sent = bits[w]; sent != 0; sent &= sent - 1) {
        const uint32_t bit = static_cast<uint32_t>(__builtin_ctz(sent));
        *out++ = (32 * w + bit) << 1 | (bits[kHalf + w] >> bit & 1u);
      }
    }
  }
}

void CpuExchange::EncodeLargest(int64_t entries, int64_t k, float* values, char* out) {
  const std::unique_ptr<SelectionEncoder> encoder =
      TopkCodec({k})->selective()->NewSelector()->NewEncoder();
  // What is added to `values` must leave zeros their sign.
  std::vector<float> held(entries, -0.0f);
  encoder->Encode(values, held.data(), entries);
  const std::vector<char> bytes = encoder->Finish();
  std::copy(bytes.begin(), bytes.end(), out);
  std::copy(held.begin(), held.end(), values);
}

void CpuExchange::Gather(const PlaceSet& set, int64_t begin, int64_t end, const float* all,
                         float* values) {
  EachPlace(set, begin, end,
            [&](int64_t place, int64_t rank) { values[rank] = all[place - begin]; });
}

void CpuExchange::Scatter(const PlaceSet& set, int64_t begin, int64_t end, const float* values,
                          float* all) {
  EachPlace(set, begin, end,
            [&](int64_t place, int64_t rank) { all[place - begin] = values[rank]; });
}

}  // namespace tessera
