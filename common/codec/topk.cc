#include "common/codec/topk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/vector_clones.h"
#include "common/codec/selective_codec.h"

namespace tessera {
namespace {

constexpr int64_t kChunkHeadBytes = 8;
constexpr int kPlaceBits = 12;
constexpr int kCodeBits = kPlaceBits + 2;
constexpr uint32_t kHighBit = 1u << kPlaceBits;
constexpr uint32_t kNegativeBit = 1u << (kPlaceBits + 1);
constexpr int32_t kInfiniteBits = 0x7f800000;
static_assert(kTopkChunk == int64_t{1} << kPlaceBits);

// The entries that are sent of a chunk of `entries`.
int64_t SentOf(int64_t entries, int64_t k) { return (k * entries + kTopkChunk - 1) / kTopkChunk; }

int64_t ChunkBytes(int64_t sent) { return kChunkHeadBytes + (sent * kCodeBits + 7) / 8; }

int64_t PayloadBytes(int64_t entries, int64_t k) {
  const int64_t rest = entries % kTopkChunk;
  return entries / kTopkChunk * ChunkBytes(k) + (rest > 0 ? ChunkBytes(SentOf(rest, k)) : 0);
}

TESSERA_VECTOR_CLONES
void AddUp(const float* update, const float* held, int64_t count, float* sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] = update[i] + held[i];
}

// The bits of magnitudes, which are in the order of the numbers. Returns the largest.
TESSERA_VECTOR_CLONES
int32_t TakeMagnitudes(const float* values, int64_t count, int32_t* bits) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t v;
    std::memcpy(&v, values + i, sizeof(v));
    bits[i] = v & 0x7fffffff;
    largest = bits[i] > largest ? bits[i] : largest;
  }
  return largest;
}

TESSERA_VECTOR_CLONES
int64_t CountFrom(const int32_t* bits, int64_t count, int32_t limit) {
  int32_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += bits[i] >= limit ? 1 : 0;
  return found;
}

// Entries above `limit` are sent, and the first `ties` of those that are equal to it.
struct Selection {
  int32_t limit = 0;
  int64_t ties = 0;
};

// Bisects the bits of the magnitudes, so that no order of the entries is needed.
Selection SelectLargest(const int32_t* bits, int64_t count, int64_t sent, int32_t largest) {
  // At least `sent` entries reach `low`, and fewer, namely `above`, `high`.
  int64_t low = 0, high = int64_t{largest} + 1, above = 0;
  while (high - low > 1) {
    const auto middle = static_cast<int32_t>((low + high) / 2);
    const int64_t found = CountFrom(bits, count, middle);
    if (found == sent) return {middle, sent};
    if (found > sent) {
      low = middle;
    } else {
      high = middle;
      above = found;
    }
  }
  return {static_cast<int32_t>(low), sent - above};
}

struct Levels {
  float low = 0;
  float high = 0;
  float mean = 0;
};

Levels LevelsOf(const float* values, const std::vector<uint16_t>& places) {
  Levels levels;
  double all = 0;
  for (const uint16_t place : places) all += std::fabs(static_cast<double>(values[place]));
  levels.mean = static_cast<float>(all / static_cast<double>(places.size()));
  double low = 0, high = 0;
  int64_t count_low = 0, count_high = 0;
  for (const uint16_t place : places) {
    const float magnitude = std::fabs(values[place]);
    const bool is_high = magnitude >= levels.mean;
    (is_high ? high : low) += static_cast<double>(magnitude);
    ++(is_high ? count_high : count_low);
  }
  levels.high = static_cast<float>(high / static_cast<double>(count_high));
  levels.low =
      count_low == 0 ? levels.high : static_cast<float>(low / static_cast<double>(count_low));
  return levels;
}

class TopkEncoder final : public SelectionEncoder {
 public:
  explicit TopkEncoder(int64_t k) : k_(k), sums_(kTopkChunk), bits_(kTopkChunk) {}

  void Encode(const float* update, float* residual, int64_t count) override {
    for (int64_t done = 0; done < count;) {
      const int64_t size = std::min(count - done, kTopkChunk - filled_);
      AddUp(update + done, residual + done, size, sums_.data() + filled_);
      runs_.push_back({residual + done, size});
      filled_ += size;
      done += size;
      if (filled_ == kTopkChunk) EndChunk();
    }
  }

  std::vector<char> Finish() override {
    if (filled_ > 0) EndChunk();
    return std::move(payload_);
  }

 private:
  // Entries of the chunk at hand that lie side by side.
  struct Run {
    float* residual;
    int64_t size;
  };

  void EndChunk() {
    const int32_t largest = TakeMagnitudes(sums_.data(), filled_, bits_.data());
    Select(largest);
    Levels levels;
    if (largest >= kInfiniteBits) {
      // Whoever checks the payload refuses it for these.
      levels.low = levels.high = std::numeric_limits<float>::quiet_NaN();
    } else {
      levels = LevelsOf(sums_.data(), places_);
    }
    Write(levels);
    const float* held = sums_.data();
    for (const Run& run : runs_) {
      std::copy_n(held, run.size, run.residual);
      held += run.size;
    }
    runs_.clear();
    filled_ = 0;
  }

  void Select(int32_t largest) {
    const int64_t sent = SentOf(filled_, k_);
    Selection selection = SelectLargest(bits_.data(), filled_, sent, largest);
    places_.clear();
    for (int64_t i = 0; i < filled_; ++i) {
      if (bits_[i] < selection.limit) continue;
      if (bits_[i] == selection.limit && selection.ties-- <= 0) continue;
      places_.push_back(static_cast<uint16_t>(i));
    }
    TESSERA_CHECK(static_cast<int64_t>(places_.size()) == sent);
  }

  // Appends the chunk, and takes what is sent from sums_.
  void Write(const Levels& levels) {
    const size_t begin = payload_.size();
    payload_.resize(begin + ChunkBytes(static_cast<int64_t>(places_.size())));
    char* out = payload_.data() + begin;
    std::memcpy(out, &levels.low, sizeof(float));
    std::memcpy(out + sizeof(float), &levels.high, sizeof(float));
    out += kChunkHeadBytes;
    uint64_t pending = 0;
    int bits = 0;
    for (const uint16_t place : places_) {
      const float m = sums_[place];
      const bool is_high = std::fabs(m) >= levels.mean;
      const bool is_negative = std::signbit(m);
      const uint32_t code = place | (is_high ? kHighBit : 0u) | (is_negative ? kNegativeBit : 0u);
      pending |= uint64_t{code} << bits;
      for (bits += kCodeBits; bits >= 8; bits -= 8, pending >>= 8) {
        *out++ = static_cast<char>(pending);
      }
      // What is not finite stays as it is.
      if (std::isnan(levels.high)) continue;
      const float level = is_high ? levels.high : levels.low;
      sums_[place] = m - (is_negative ? -level : level);
    }
    if (bits > 0) *out = static_cast<char>(pending);
  }

  const int64_t k_;
  // The chunk at hand: update and residual added up, and the bits of their magnitudes.
  std::vector<float> sums_;
  std::vector<int32_t> bits_;
  int64_t filled_ = 0;
  std::vector<Run> runs_;
  std::vector<uint16_t> places_;
  std::vector<char> payload_;
};

// The bytes of a payload, copied chunk by chunk from wherever its pieces lie.
class ChunkBytesReader {
 public:
  ChunkBytesReader(const Payload& payload, int64_t k)
      : payload_(payload), k_(k), left_(payload.size()), bytes_(ChunkBytes(k) + sizeof(uint32_t)) {}

  // False: none is left, or what is left is no chunk.
  bool Next() {
    const int64_t size = std::min(left_, ChunkBytes(k_));
    if (size <= kChunkHeadBytes) return false;
    for (int64_t done = 0; done < size;) {
      const Payload::Piece& piece = payload_.pieces()[piece_];
      const int64_t taken = std::min(size - done, piece.size - offset_);
      std::memcpy(bytes_.data() + done, piece.data + offset_, taken);
      done += taken;
      offset_ += taken;
      if (offset_ < piece.size) continue;
      ++piece_;
      offset_ = 0;
    }
    left_ -= size;
    // A code has more bits than the last byte is filled up with, so that the size says how many there are.
    sent_ = (size - kChunkHeadBytes) * 8 / kCodeBits;
    rest_bits_ = static_cast<int>((size - kChunkHeadBytes) * 8 - sent_ * kCodeBits);
    return true;
  }

  int64_t sent() const { return sent_; }
  float low() const { return FloatAt(0); }
  float high() const { return FloatAt(sizeof(float)); }
  uint32_t Code(int64_t number) const { return BitsAt(number * kCodeBits, kCodeBits); }
  // What the last byte is filled up with.
  uint32_t filling() const {
    return rest_bits_ == 0 ? 0 : BitsAt(sent_ * kCodeBits, std::min(rest_bits_, kCodeBits));
  }

 private:
  float FloatAt(int64_t byte) const {
    float value;
    std::memcpy(&value, bytes_.data() + byte, sizeof(value));
    return value;
  }
  uint32_t BitsAt(int64_t bit, int count) const {
    uint32_t word;
    // There is room for a whole word behind the last code.
    std::memcpy(&word, bytes_.data() + kChunkHeadBytes + bit / 8, sizeof(word));
    return word >> bit % 8 & ((1u << count) - 1);
  }

  const Payload& payload_;
  const int64_t k_;
  size_t piece_ = 0;
  int64_t offset_ = 0;
  int64_t left_;
  std::vector<char> bytes_;
  int64_t sent_ = 0;
  int rest_bits_ = 0;
};

class TopkReader final : public SelectedReader {
 public:
  TopkReader(const Payload& payload, int64_t k) : chunk_(payload, k) {
    if (NextChunk()) Step();
  }

  void Assign(int64_t count, float weight, float* sum) override {
    std::fill_n(sum, count, 0.0f);
    Accumulate(count, weight, sum);
  }
  void Accumulate(int64_t count, float weight, float* sum) override {
    for (; !ended_ && next_ < at_ + count; Step()) sum[next_ - at_] += weight * value_;
    at_ += count;
  }

  std::optional<int64_t> NextPlace() const override {
    return ended_ ? std::nullopt : std::optional<int64_t>(next_);
  }
  int64_t Take(int64_t end, int64_t room, float weight, int64_t* places, float* values) override {
    int64_t count = 0;
    for (; !ended_ && next_ < end && count < room; Step(), ++count) {
      places[count] = next_;
      values[count] = weight * value_;
    }
    return count;
  }

 private:
  bool NextChunk() {
    ended_ = !chunk_.Next();
    number_ = 0;
    return !ended_;
  }

  // Finds the next entry sent.
  void Step() {
    if (number_ == chunk_.sent()) {
      begin_ += kTopkChunk;
      if (!NextChunk()) return;
    }
    const uint32_t code = chunk_.Code(number_++);
    const int64_t place = begin_ + (code & (kHighBit - 1));
    // Places of a payload that was never checked may go back, where the caller's array is not any more.
    ended_ = place <= next_;
    next_ = place;
    const float level = (code & kHighBit) != 0 ? chunk_.high() : chunk_.low();
    value_ = (code & kNegativeBit) != 0 ? -level : level;
  }

  ChunkBytesReader chunk_;
  int64_t at_ = 0;      // entries read
  int64_t begin_ = 0;   // of the chunk
  int64_t number_ = 0;  // of the code after the next entry's
  int64_t next_ = -1;   // the place of the next entry sent
  float value_ = 0;
  bool ended_ = false;
};

absl::Status Bad(int64_t chunk, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("topk: chunk ", chunk, ": ", what));
}

absl::Status CheckChunk(const ChunkBytesReader& chunk, int64_t number, int64_t entries) {
  // A comparison with NaN is false, too.
  if (!std::isfinite(chunk.high()) || !(chunk.low() >= 0 && chunk.low() <= chunk.high())) {
    return Bad(number,
               absl::StrCat("levels are ", chunk.low(), " and ", chunk.high(),
                            ", want finite numbers of at least 0, the second no less than the "
                            "first; the training diverged, try a lower learning rate"));
  }
  int64_t before = -1;
  for (int64_t i = 0; i < chunk.sent(); ++i) {
    const int64_t place = chunk.Code(i) & (kHighBit - 1);
    if (place <= before) {
      return Bad(number, absl::StrCat("an entry is at ", place, " behind one at ", before,
                                      ", want ascending places"));
    }
    before = place;
  }
  if (before >= entries) {
    return Bad(number, absl::StrCat("an entry is at ", before, ", want less than its ", entries,
                                    " entries"));
  }
  if (chunk.filling() == 0) return absl::OkStatus();
  return Bad(number, absl::StrCat("its last bits are ", chunk.filling(), ", want 0"));
}

class TopkSelector final : public EntrySelector {
 public:
  explicit TopkSelector(int64_t k) : k_(k) {}

  int64_t sample_size() const override { return 0; }
  void Learn(std::vector<float>) override {}
  absl::Span<float> state() override { return {}; }
  std::unique_ptr<SelectionEncoder> NewEncoder() const override {
    return std::make_unique<TopkEncoder>(k_);
  }

 private:
  const int64_t k_;
};

class TopkDefinition final : public CodecDefinition, public SelectiveCodec {
 public:
  explicit TopkDefinition(const TopkNumbers& numbers)
      : CodecDefinition("topk", absl::StrCat(numbers.k, " of ", kTopkChunk), Traits()),
        k_(numbers.k) {}

  const SelectiveCodec* selective() const override { return this; }

  std::unique_ptr<EntrySelector> NewSelector() const override {
    return std::make_unique<TopkSelector>(k_);
  }
  int64_t BytesMax(int64_t entries) const override { return PayloadBytes(entries, k_); }
  bool packed() const override { return false; }
  absl::Status Check(const Payload& payload, int64_t entries) const override {
    const int64_t wanted = PayloadBytes(entries, k_);
    if (payload.size() != wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat("topk: payload is ", payload.size(), " bytes, want ", wanted, ", which ", k_,
                       " of each ", kTopkChunk, " of ", entries, " entries take"));
    }
    ChunkBytesReader chunk(payload, k_);
    for (int64_t number = 0, left = entries; left > 0; ++number, left -= kTopkChunk) {
      TESSERA_CHECK(chunk.Next());
      TESSERA_RETURN_IF_ERROR(CheckChunk(chunk, number, std::min(left, kTopkChunk)));
    }
    return absl::OkStatus();
  }
  std::unique_ptr<SelectedReader> NewReader(const Payload& payload) const override {
    return std::make_unique<TopkReader>(payload, k_);
  }

  int64_t largest_of_chunk() const override { return k_; }

  PayloadForecast Forecast(int64_t entries) const override {
    PayloadForecast forecast;
    forecast.bytes = PayloadBytes(entries, k_);
    return forecast;
  }
  std::optional<double> sent_share() const override {
    return static_cast<double>(k_) / static_cast<double>(kTopkChunk);
  }

 private:
  static CodecTraits Traits() {
    CodecTraits traits;
    traits.loss = CodecLoss::kUnsent;
    traits.on_devices = true;
    return traits;
  }

  const int64_t k_;
};

}  // namespace

Codec TopkCodec(const TopkNumbers& numbers) {
  return Codec(std::make_shared<const TopkDefinition>(numbers));
}

}  // namespace tessera
