#include "common/codec/threshold_payload.h"

#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

constexpr uint32_t kSkip = 0xfffffffeu;
constexpr int64_t kSkipped = (int64_t{1} << 31) - 1;
constexpr int64_t kHeadBytes = 8;
constexpr uint32_t kPlain = 0;
constexpr uint32_t kZstd = 1;
// Words of a block: a byte of each is one block of zstd's, with a table of its own.
constexpr int64_t kBlockWords = 65536;
constexpr int kPlanes = 4;
// zstd's fastest regular level: a push is packed while the worker waits.
constexpr int kZstdLevel = 1;
// Plain words that are read at a time.
constexpr int64_t kReadWords = 1024;
void AppendWord(uint32_t word, std::vector<char>* out) {
  const size_t size = out->size();
  out->resize(size + sizeof(word));
  std::memcpy(out->data() + size, &word, sizeof(word));
}

// Appends one block: for each of the words' four bytes, from the lowest, a frame of these bytes of all words. High
// bytes of gaps are mostly zero, so that their frames are nearly empty.
void AppendBlock(const uint32_t* words, int64_t count, std::vector<char>* out) {
  AppendWord(static_cast<uint32_t>(count), out);
  std::vector<unsigned char> plane(count);
  for (int p = 0; p < kPlanes; ++p) {
    for (int64_t i = 0; i < count; ++i) plane[i] = static_cast<unsigned char>(words[i] >> 8 * p);
    const size_t size = out->size();
    const size_t room = ZSTD_compressBound(count);
    out->resize(size + sizeof(uint32_t) + room);
    const size_t written =
        ZSTD_compress(out->data() + size + sizeof(uint32_t), room, plane.data(), count, kZstdLevel);
    TESSERA_CHECK(!ZSTD_isError(written));
    const uint32_t frame = static_cast<uint32_t>(written);
    std::memcpy(out->data() + size, &frame, sizeof(frame));
    out->resize(size + sizeof(uint32_t) + written);
  }
}

void EndUnpacker(ZSTD_DCtx* unpacker) { ZSTD_freeDCtx(unpacker); }

}  // namespace

ThresholdEncoder::ThresholdEncoder(float tau, bool packs, CodecPath path)
    : tau_(tau), packs_(packs), path_(path) {
  TESSERA_CHECK(tau > 0);
}

void ThresholdEncoder::Encode(const float* update, float* residual, int64_t count) {
  uint32_t marks[kThresholdRun + kThresholdSlack];
  for (int64_t begin = 0; begin < count; begin += kThresholdRun) {
    const int64_t size = std::min(kThresholdRun, count - begin);
    Add(RunThreshold(path_, update + begin, residual + begin, size, tau_, marks), marks, size);
  }
}

void ThresholdEncoder::Add(const ThresholdRun& run, const uint32_t* marks, int64_t count) {
  if (run.largest >= 0x7f800000u) all_finite_ = false;
  // The gap goes on from the last call: entries that were skipped at its end count into the first gap of this one.
  int64_t last = -1 - skipped_;
  for (int64_t i = 0; i < run.marks; ++i) {
    const int64_t place = marks[i] >> 1;
    int64_t gap = place - last - 1;
    for (; gap >= kSkipped; gap -= kSkipped) words_.push_back(kSkip);
    words_.push_back(static_cast<uint32_t>(gap) << 1 | (marks[i] & 1u));
    last = place;
  }
  sent_ += run.marks;
  // Entries from the last mark to the end of the run are carried over to the next one.
  skipped_ = count - 1 - last;
}

std::vector<char> ThresholdEncoder::Finish() {
  std::vector<char> payload;
  const float tau = all_finite_ ? tau_ : std::numeric_limits<float>::quiet_NaN();
  // An update that is not finite sends a NaN as tau and no entries, so that the receiver refuses it with a reason.
  if (!all_finite_) words_.clear();
  uint32_t bits;
  std::memcpy(&bits, &tau, sizeof(bits));
  AppendWord(bits, &payload);
  AppendWord(packs_ ? kZstd : kPlain, &payload);
  const int64_t count = static_cast<int64_t>(words_.size());
  if (packs_) {
    for (int64_t begin = 0; begin < count; begin += kBlockWords) {
      AppendBlock(words_.data() + begin, std::min(kBlockWords, count - begin), &payload);
    }
  } else if (count > 0) {
    payload.resize(kHeadBytes + count * sizeof(uint32_t));
    std::memcpy(payload.data() + kHeadBytes, words_.data(), count * sizeof(uint32_t));
  }
  return payload;
}

int64_t ThresholdBytesMax(int64_t entries) {
  // Whichever form is larger: packing words that do not pack adds zstd's overhead and the heads of blocks.
  constexpr int64_t kBlockHead = (1 + kPlanes) * sizeof(uint32_t);
  const int64_t blocks = (entries + kBlockWords - 1) / kBlockWords;
  const int64_t block =
      kBlockHead + kPlanes * static_cast<int64_t>(ZSTD_compressBound(kBlockWords));
  return kHeadBytes + std::max<int64_t>(entries * sizeof(uint32_t), blocks * block);
}

ThresholdWords::ThresholdWords(const Payload& payload)
    : payload_(payload), left_(payload.size()), unpacker_(nullptr, EndUnpacker) {
  char head[kHeadBytes];
  if (!Take(kHeadBytes, head)) {
    status_ = absl::InvalidArgumentError(absl::StrCat("threshold: payload is ", payload.size(),
                                                      " bytes, want at least ", kHeadBytes));
    left_ = 0;
    return;
  }
  std::memcpy(&tau_, head, sizeof(tau_));
  std::memcpy(&packing_, head + sizeof(tau_), sizeof(packing_));
  // A packing that is unknown is an error, and nothing after it is read.
  if (packing_ <= kZstd) return;
  status_ =
      absl::InvalidArgumentError(absl::StrCat("threshold: packing is ", packing_, ", want 0 or 1"));
  left_ = 0;
}

ThresholdWords::~ThresholdWords() = default;

bool ThresholdWords::Take(int64_t size, char* out) {
  if (size > left_) return false;
  left_ -= size;
  while (size > 0) {
    const Payload::Piece& piece = payload_.pieces()[piece_];
    const int64_t taken = std::min(size, piece.size - offset_);
    std::memcpy(out, piece.data + offset_, taken);
    out += taken;
    size -= taken;
    offset_ += taken;
    if (offset_ == piece.size) {
      ++piece_;
      offset_ = 0;
    }
  }
  return true;
}

bool ThresholdWords::Next(uint32_t* word) {
  if (next_ == words_.size() && !Fill()) return false;
  *word = words_[next_++];
  return true;
}

bool ThresholdWords::Fill() {
  words_.clear();
  next_ = 0;
  if (left_ == 0 || !status_.ok()) return false;
  if (packing_ == kZstd) {
    if (FillBlock()) return true;
    if (status_.ok()) status_ = absl::InvalidArgumentError("threshold: a block is cut off");
    words_.clear();
    return false;
  }
  const int64_t count = std::min<int64_t>(kReadWords, left_ / sizeof(uint32_t));
  if (count == 0) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("threshold: the last word has ", left_, " bytes, want 4"));
    return false;
  }
  words_.resize(count);
  return Take(count * sizeof(uint32_t), reinterpret_cast<char*>(words_.data()));
}

bool ThresholdWords::FillBlock() {
  uint32_t count = 0;
  if (!Take(sizeof(count), reinterpret_cast<char*>(&count))) return false;
  // A count of zero would let a sender put any number of empty blocks into a payload.
  if (count == 0 || count > kBlockWords) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("threshold: a block has ", count, " words, want 1 to ", kBlockWords));
    return false;
  }
  // Each block costs a fixed time beside its words'.
  if (had_last_block_) {
    status_ =
        absl::InvalidArgumentError(absl::StrCat("threshold: a block that is not the last has ",
                                                plane_.size(), " words, want ", kBlockWords));
    return false;
  }
  had_last_block_ = count < kBlockWords;
  if (unpacker_ == nullptr) unpacker_.reset(ZSTD_createDCtx());
  TESSERA_CHECK(unpacker_ != nullptr);
  words_.assign(count, 0);
  plane_.resize(count);
  for (int p = 0; p < kPlanes; ++p) {
    uint32_t size = 0;
    if (!Take(sizeof(size), reinterpret_cast<char*>(&size))) return false;
    // A frame that is larger than its contents could ever need is refused before memory is taken for it.
    if (size > ZSTD_compressBound(count)) {
      status_ = absl::InvalidArgumentError(absl::StrCat("threshold: a frame of ", count,
                                                        " bytes takes ", size, ", want at most ",
                                                        ZSTD_compressBound(count)));
      return false;
    }
    frame_.resize(size);
    if (!Take(size, frame_.data())) return false;
    const size_t unpacked =
        ZSTD_decompressDCtx(unpacker_.get(), plane_.data(), count, frame_.data(), size);
    if (ZSTD_isError(unpacked) || unpacked != count) {
      status_ = absl::InvalidArgumentError(absl::StrCat(
          "threshold: a frame does not unpack to ", count,
          " bytes: ", ZSTD_isError(unpacked) ? ZSTD_getErrorName(unpacked) : "it is shorter"));
      return false;
    }
    for (uint32_t i = 0; i < count; ++i) words_[i] |= static_cast<uint32_t>(plane_[i]) << 8 * p;
  }
  return true;
}

absl::Status CheckThresholdPayload(const Payload& payload, int64_t entries, bool packs) {
  ThresholdWords words(payload);
  TESSERA_RETURN_IF_ERROR(words.status());
  if (words.packed() && !packs) {
    return absl::InvalidArgumentError(
        "threshold: packing is 1, want 0; the job's codec.push.threshold.packed is false");
  }
  if (!std::isfinite(words.tau()) || !(words.tau() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("threshold: tau is ", words.tau(),
                     ", want a finite number above 0; the training diverged, try a lower learning "
                     "rate"));
  }
  int64_t at = 0;
  uint32_t word = 0;
  while (words.Next(&word)) {
    // Every place is below `entries` before any is used as an index; `at` grows with each word, so that it cannot wrap.
    at += word == kSkip ? kSkipped : int64_t{word >> 1} + 1;
    if (at <= entries) continue;
    return absl::InvalidArgumentError(absl::StrCat("threshold: an entry is at ", at - 1,
                                                   ", want less than the ", entries, " entries"));
  }
  return words.status();
}

ThresholdReader::ThresholdReader(const Payload& payload) : words_(payload) {
  next_ = -1;
  Step();
}

// Finds the next entry sent.
void ThresholdReader::Step() {
  uint32_t word = 0;
  while (words_.Next(&word)) {
    if (word == kSkip) {
      next_ += kSkipped;
      continue;
    }
    next_ += int64_t{word >> 1} + 1;
    negative_ = (word & 1u) != 0;
    return;
  }
  ended_ = true;
}

void ThresholdReader::Assign(int64_t count, float weight, float* sum) {
  std::fill_n(sum, count, 0.0f);
  Accumulate(count, weight, sum);
}

void ThresholdReader::Accumulate(int64_t count, float weight, float* sum) {
  const float step = weight * words_.tau();
  for (; !ended_ && next_ < at_ + count; Step()) sum[next_ - at_] += negative_ ? -step : step;
  at_ += count;
}

int64_t ThresholdReader::Take(int64_t end, int64_t room, float weight, int64_t* places,
                              float* values) {
  const float step = weight * words_.tau();
  int64_t count = 0;
  for (; !ended_ && next_ < end && count < room; Step(), ++count) {
    places[count] = next_;
    values[count] = negative_ ? -step : step;
  }
  return count;
}

}  // namespace tessera
