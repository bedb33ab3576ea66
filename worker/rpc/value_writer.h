// Where the values of an answer go: into the replica, as their bytes arrive.
#ifndef TESSERA_WORKER_RPC_VALUE_WRITER_H_
#define TESSERA_WORKER_RPC_VALUE_WRITER_H_

#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/codec/coded_keys.h"
#include "common/codec/decoder.h"
#include "worker/rpc/replica_runs.h"

namespace tessera {

// One thread at a time.
class ValueWriter {
 public:
  // Both must outlive this. `keys`: how the values are written; nullptr: f32, all of `runs`.
  ValueWriter(ValueRuns* runs, const CodedKeys* keys)
      : runs_(runs), bytes_(keys == nullptr ? runs->left() : keys->bytes()), left_(bytes_) {
    if (keys != nullptr && !(keys->codec() == Codec())) decoder_.emplace(*keys);
  }

  // Writes the bytes to `to` as they come, to be decoded by somebody else. `to` must outlive this.
  ValueWriter(char* to, int64_t bytes) : to_(to), bytes_(bytes), left_(bytes) {}

  // Bytes of the whole payload, and those that are still to come.
  int64_t bytes() const { return bytes_; }
  int64_t left() const { return left_; }

  // Whether bytes are decoded where they are written: they must not change meanwhile.
  bool is_decoded() const { return decoder_.has_value(); }

  // Takes the next bytes, at most left(), which read(to, count) writes where they belong, piece by piece. Not where
  // is_decoded(). On an error of `read` what was written may be anything.
  template <typename Read>
  absl::Status Fill(int64_t size, Read read) {
    TESSERA_CHECK(size <= left_ && !is_decoded());
    left_ -= size;
    absl::Status status;
    if (runs_ == nullptr) {
      status = read(to_, size);
      to_ += size;
      return status;
    }
    runs_->Take(size, [&](char* to, int64_t count) {
      if (status.ok()) status = read(to, count);
    });
    return status;
  }

  // Takes the next bytes, at most left().
  void Write(const char* data, int64_t size) {
    TESSERA_CHECK(size <= left_);
    left_ -= size;
    if (runs_ == nullptr) {
      std::memcpy(to_, data, size);
      to_ += size;
      return;
    }
    if (!decoder_) {
      return runs_->Take(size, [&data](char* to, int64_t count) {
        std::memcpy(to, data, count);
        data += count;
      });
    }
    while (size > 0) {
      const auto [to, run] = runs_->Ahead();
      const Decoder::Step step = decoder_->Assign(data, size, 1.0f, to, run);
      runs_->Skip(step.entries);
      data += step.bytes;
      size -= step.bytes;
      TESSERA_CHECK(step.bytes > 0 || step.entries > 0);
    }
  }

 private:
  ValueRuns* runs_ = nullptr;
  char* to_ = nullptr;  // where there are no runs
  const int64_t bytes_;
  int64_t left_;
  std::optional<Decoder> decoder_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_VALUE_WRITER_H_
