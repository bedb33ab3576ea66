#include "server/rpc/answer_payload.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/borrowed_slice.h"
#include "server/shard/block_walk.h"

namespace tessera {
namespace {

constexpr int64_t kEntryBytes = sizeof(float);
// A slice of so few bytes holds them itself, and they are not aligned there.
constexpr int64_t kSmallBytes = 256;
// Entries that are coded at a time where buckets have no headers: they stay in the first-level cache.
constexpr int64_t kTileEntries = 4096;

class Borrowed final : public AnswerPayload {
 public:
  Borrowed(std::shared_ptr<const Snapshot> snapshot, int64_t begin, int64_t entries)
      : walk_(std::move(snapshot), begin), left_(entries) {}

  int64_t left() const override { return left_ * kEntryBytes; }
  bool is_borrowed() const override { return true; }
  std::vector<grpc::Slice> Next(int64_t room) override {
    std::vector<grpc::Slice> slices;
    // No more than whole entries go into a chunk.
    int64_t entries = std::min(left_, room / kEntryBytes);
    left_ -= entries;
    while (entries > 0) {
      const int64_t run = std::min(entries, walk_.run());
      // The slice holds the block: it stays as long as gRPC has not sent it, whatever the shard rewrites meanwhile.
      slices.push_back(BorrowSlice(walk_.data(), run * kEntryBytes, walk_.block()));
      walk_.Skip(run);
      entries -= run;
    }
    return slices;
  }

 private:
  BlockWalk walk_;
  int64_t left_;
};

class Gathered final : public AnswerPayload {
 public:
  Gathered(int64_t entries, std::unique_ptr<EntrySource> source)
      : source_(std::move(source)), left_(entries) {}

  int64_t left() const override { return left_ * kEntryBytes; }
  std::vector<grpc::Slice> Next(int64_t room) override {
    const int64_t entries = std::min(left_, room / kEntryBytes);
    const int64_t bytes = entries * kEntryBytes;
    if (bytes <= kSmallBytes) {
      // The bytes of a small slice lie unaligned within it, so that values are gathered beside it first.
      float values[kSmallBytes / kEntryBytes];
      Take(entries, values);
      return {grpc::Slice(values, static_cast<size_t>(bytes))};
    }
    grpc::Slice slice(static_cast<size_t>(bytes));
    // gRPC gives no writable access to a slice that is new; nobody else has it yet.
    void* const out = const_cast<uint8_t*>(slice.begin());
    Take(entries, static_cast<float*>(out));
    return {slice};
  }

 private:
  void Take(int64_t entries, float* out) {
    left_ -= entries;
    // The source may have the values in one piece elsewhere, and then leaves the copy to us.
    const float* const values = source_->Next(entries, out);
    if (values != out) std::copy_n(values, entries, out);
  }

  const std::unique_ptr<EntrySource> source_;
  int64_t left_;
};

class CodedAnswer final : public AnswerPayload {
 public:
  CodedAnswer(const CodedKeys& keys, const PayloadRandom& random,
              std::unique_ptr<EntrySource> source)
      : encoder_(keys, random),
        source_(std::move(source)),
        scratch_(std::max(kTileEntries, keys.bucket_max())) {}

  int64_t left() const override { return encoder_.left(); }
  std::vector<grpc::Slice> Next(int64_t room) override {
    // A chunk ends where the room ends, or where an entry does not fit any more.
    room = std::min(room, encoder_.left());
    // Room that is not written is not touched either.
    const std::shared_ptr<char> bytes(new char[room], std::default_delete<char[]>());
    int64_t written = 0;
    while (written < room) {
      // Entries that the last chunk had no room for are coded first.
      if (count_ == 0) {
        const Encoder::Ahead ahead = encoder_.ahead();
        count_ = ahead.whole ? ahead.entries : std::min(ahead.entries, kTileEntries);
        entries_ = source_->Next(count_, scratch_.data());
      }
      const Encoder::Step step =
          encoder_.Encode(entries_, count_, bytes.get() + written, room - written);
      written += step.bytes;
      entries_ += step.entries;
      count_ -= step.entries;
      // What did not fit waits for the next chunk.
      if (count_ > 0) break;
    }
    return {BorrowSlice(bytes.get(), written, bytes)};
  }

 private:
  Encoder encoder_;
  const std::unique_ptr<EntrySource> source_;
  std::vector<float> scratch_;
  // What was taken from the source and is not coded.
  const float* entries_ = nullptr;
  int64_t count_ = 0;
};

class Bytes final : public AnswerPayload {
 public:
  explicit Bytes(std::string bytes)
      : bytes_(std::make_shared<const std::string>(std::move(bytes))) {}

  int64_t left() const override { return static_cast<int64_t>(bytes_->size()) - done_; }
  bool is_borrowed() const override { return true; }
  std::vector<grpc::Slice> Next(int64_t room) override {
    const int64_t size = std::min(room, left());
    const char* const begin = bytes_->data() + done_;
    done_ += size;
    // Slices share the string, which lives until gRPC has sent the last.
    return {BorrowSlice(begin, size, bytes_)};
  }

 private:
  const std::shared_ptr<const std::string> bytes_;
  int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<AnswerPayload> BytesPayload(std::string bytes) {
  return std::make_unique<Bytes>(std::move(bytes));
}

std::unique_ptr<AnswerPayload> DensePayload(std::shared_ptr<const Snapshot> snapshot, int64_t begin,
                                            int64_t entries) {
  return std::make_unique<Borrowed>(std::move(snapshot), begin, entries);
}

std::unique_ptr<AnswerPayload> GatheredPayload(int64_t entries,
                                               std::unique_ptr<EntrySource> source) {
  return std::make_unique<Gathered>(entries, std::move(source));
}

std::unique_ptr<AnswerPayload> CodedPayload(const CodedKeys& keys, const PayloadRandom& random,
                                            std::unique_ptr<EntrySource> source) {
  return std::make_unique<CodedAnswer>(keys, random, std::move(source));
}

}  // namespace tessera
