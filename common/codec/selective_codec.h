// What a codec answers whose payloads have only some entries of an update, and so no fixed size: which entries they are
// is decided by each push, and what is not sent stays with the sender, in its residual.
#ifndef TESSERA_COMMON_CODEC_SELECTIVE_CODEC_H_
#define TESSERA_COMMON_CODEC_SELECTIVE_CODEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/codec/forecast.h"
#include "common/codec/payload.h"
#include "common/codec/threshold_run.h"

namespace tessera {

// Makes one payload. One thread.
class SelectionEncoder {
 public:
  virtual ~SelectionEncoder() = default;
  // The next `count` entries, and what is held back of them, which changes until Finish has returned.
  virtual void Encode(const float* update, float* residual, int64_t count) = 0;
  // Encode for `count` entries (at most kThresholdRun) over which the loop went elsewhere, on a device: what
  // RunThreshold says of them with EntrySelector::limit(), and its marks. Not asked of a codec that has no limit.
  virtual void Add(const ThresholdRun&, const uint32_t*, int64_t) { TESSERA_CHECK(false); }
  // The payload. Nothing may be encoded after it.
  virtual std::vector<char> Finish() = 0;
};

// Which entries a worker's pushes select, and what it has learned of updates for that. One thread.
class EntrySelector {
 public:
  virtual ~EntrySelector() = default;
  // Before each update: magnitudes of some of its entries, residual included, about sample_size() of them. Not asked
  // for where that is 0.
  virtual int64_t sample_size() const = 0;
  virtual void Learn(std::vector<float> magnitudes) = 0;
  // All that was learned, which may be kept and written back; empty: nothing is. What was never a state of one is as if
  // nothing had been seen.
  virtual absl::Span<float> state() = 0;
  // Entries are sent whose magnitude, residual included, has reached it; nullopt: there is no such number.
  virtual std::optional<float> limit() const { return std::nullopt; }
  // Returns an encoder for one payload of the update that was learned of last.
  virtual std::unique_ptr<SelectionEncoder> NewEncoder() const = 0;
};

// Adds up a payload that passed SelectiveCodec::Check. Of others it reads and writes no more than it should, either,
// but what it adds is undefined. One thread.
class SelectedReader {
 public:
  virtual ~SelectedReader() = default;
  // sum[i] = weight * x[i], or sum[i] += weight * x[i], for the next `count` entries.
  virtual void Assign(int64_t count, float weight, float* sum) = 0;
  virtual void Accumulate(int64_t count, float weight, float* sum) = 0;

  // The two below skip the entries that were not sent, and are not called beside the two above. Where the next entry
  // sent is; nullopt: there is none.
  virtual std::optional<int64_t> NextPlace() const = 0;
  // The next entries sent before `end`, at most `room`: their places and weight * x. Returns how many.
  virtual int64_t Take(int64_t end, int64_t room, float weight, int64_t* places, float* values) = 0;
};

// Immutable; any thread.
class SelectiveCodec {
 public:
  virtual ~SelectiveCodec() = default;

  virtual std::unique_ptr<EntrySelector> NewSelector() const = 0;

  // No payload of so many entries is longer.
  virtual int64_t BytesMax(int64_t entries) const = 0;
  // Payloads are compressed: Check takes long, and is made for members alone.
  virtual bool packed() const = 0;
  // kInvalidArgument: `payload`, which came from the network, is not of an update of so many entries, and why. Takes
  // time in proportion to entries and bytes, whoever made it.
  virtual absl::Status Check(const Payload& payload, int64_t entries) const = 0;
  // `payload` must outlive it.
  virtual std::unique_ptr<SelectedReader> NewReader(const Payload& payload) const = 0;

  // How many entries of each chunk are sent, the largest, where a device writes the payload
  // (ExchangeKernel::EncodeLargest).
  // 0: devices find the entries that reach EntrySelector::limit().
  virtual int64_t largest_of_chunk() const { return 0; }

  virtual PayloadForecast Forecast(int64_t entries) const = 0;
  // The share of the entries that a push is meant to send; nullopt: nobody knows.
  virtual std::optional<double> sent_share() const = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_SELECTIVE_CODEC_H_
