#include "server/rpc/answer_payload.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/borrowed_slice.h"

namespace tessera {
namespace {

constexpr int64_t kEntryBytes = sizeof(float);
// A slice of so few bytes holds them itself, and they are not aligned there.
constexpr int64_t kSmallBytes = 256;
// Entries that are coded at a time where buckets have no headers: they stay in the first-level cache.
constexpr int64_t kTileEntries = 4096;

// Where the shard's dense order goes on.
class BlockWalk {
 public:
  BlockWalk(std::shared_ptr<const Snapshot> snapshot, int64_t begin)
      : snapshot_(std::move(snapshot)), offset_(begin) {
    if (snapshot_->blocks().empty()) return;
    while (offset_ >= block()->size()) {
      offset_ -= block()->size();
      if (++block_ == snapshot_->blocks().size()) break;
    }
  }

  const std::shared_ptr<const Block>& block() const { return snapshot_->blocks()[block_]; }
  // Entries of the block that are left.
  int64_t run() const { return block()->size() - offset_; }
  const float* data() const { return block()->data() + offset_; }
  // `count` is at most run().
  void Skip(int64_t count) {
    offset_ += count;
    if (offset_ < block()->size()) return;
    ++block_;
    offset_ = 0;
  }

 private:
  const std::shared_ptr<const Snapshot> snapshot_;
  size_t block_ = 0;
  int64_t offset_ = 0;
};

class DenseEntries final : public EntrySource {
 public:
  DenseEntries(std::shared_ptr<const Snapshot> snapshot, int64_t begin)
      : walk_(std::move(snapshot), begin) {}

  const float* Next(int64_t count, float* scratch) override {
    // A run may end with its block, which the caller may still read, as the snapshot holds it.
    if (count <= walk_.run()) {
      const float* const data = walk_.data();
      walk_.Skip(count);
      return data;
    }
    for (int64_t done = 0; done < count;) {
      const int64_t run = std::min(count - done, walk_.run());
      std::copy_n(walk_.data(), run, scratch + done);
      walk_.Skip(run);
      done += run;
    }
    return scratch;
  }

 private:
  BlockWalk walk_;
};

class SubnetEntries final : public EntrySource {
 public:
  SubnetEntries(std::shared_ptr<const SiteSubnet> site, std::shared_ptr<const Snapshot> snapshot)
      : gather_(std::move(site), std::move(snapshot)) {}

  const float* Next(int64_t count, float* scratch) override {
    gather_.Next(count, scratch);
    return scratch;
  }

 private:
  SubnetGather gather_;
};

class SparseEntries final : public EntrySource {
 public:
  SparseEntries(std::shared_ptr<const SparsePlace> place, std::shared_ptr<const Snapshot> snapshot)
      : place_(std::move(place)), snapshot_(std::move(snapshot)), walk_(place_->keys.entries) {}

  const float* Next(int64_t count, float* scratch) override {
    for (int64_t done = 0; done < count;) {
      const Block& block = *snapshot_->blocks()[block_];
      const int64_t end = block_begin_ + block.size();
      const EntryWalk::Run run = walk_.Next(end, count - done);
      GatherEntries(place_->keys.entries, run.begin, run.end,
                    block.data() + (run.begin - block_begin_), scratch + done);
      done += run.count;
      if (walk_.place() < end) continue;
      ++block_;
      block_begin_ = end;
    }
    return scratch;
  }

 private:
  const std::shared_ptr<const SparsePlace> place_;
  const std::shared_ptr<const Snapshot> snapshot_;
  EntryWalk walk_;
  size_t block_ = 0;
  int64_t block_begin_ = 0;  // in the dense order
};

class Borrowed final : public AnswerPayload {
 public:
  Borrowed(std::shared_ptr<const Snapshot> snapshot, int64_t begin, int64_t entries)
      : walk_(std::move(snapshot), begin), left_(entries) {}

  int64_t left() const override { return left_ * kEntryBytes; }
  bool is_borrowed() const override { return true; }
  std::vector<grpc::Slice> Next(int64_t room) override {
    std::vector<grpc::Slice> slices;
    int64_t entries = std::min(left_, room / kEntryBytes);
    left_ -= entries;
    while (entries > 0) {
      const int64_t run = std::min(entries, walk_.run());
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
  Gathered(std::shared_ptr<const SiteSubnet> site, std::shared_ptr<const Snapshot> snapshot)
      : gather_(std::move(site), std::move(snapshot)) {}

  int64_t left() const override { return gather_.left() * kEntryBytes; }
  std::vector<grpc::Slice> Next(int64_t room) override {
    const int64_t entries = std::min(gather_.left(), room / kEntryBytes);
    const int64_t bytes = entries * kEntryBytes;
    if (bytes <= kSmallBytes) {
      float values[kSmallBytes / kEntryBytes];
      gather_.Next(entries, values);
      return {grpc::Slice(values, static_cast<size_t>(bytes))};
    }
    grpc::Slice slice(static_cast<size_t>(bytes));
    void* const out = const_cast<uint8_t*>(slice.begin());
    gather_.Next(entries, static_cast<float*>(out));
    return {slice};
  }

 private:
  SubnetGather gather_;
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
    room = std::min(room, encoder_.left());
    // Room that is not written is not touched either.
    const std::shared_ptr<char> bytes(new char[room], std::default_delete<char[]>());
    int64_t written = 0;
    while (written < room) {
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
    return {BorrowSlice(begin, size, bytes_)};
  }

 private:
  const std::shared_ptr<const std::string> bytes_;
  int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<EntrySource> SparseSource(std::shared_ptr<const SparsePlace> place,
                                          std::shared_ptr<const Snapshot> snapshot) {
  return std::make_unique<SparseEntries>(std::move(place), std::move(snapshot));
}

std::unique_ptr<AnswerPayload> BytesPayload(std::string bytes) {
  return std::make_unique<Bytes>(std::move(bytes));
}

std::unique_ptr<EntrySource> DenseSource(std::shared_ptr<const Snapshot> snapshot, int64_t begin) {
  return std::make_unique<DenseEntries>(std::move(snapshot), begin);
}

std::unique_ptr<EntrySource> SubnetSource(std::shared_ptr<const SiteSubnet> site,
                                          std::shared_ptr<const Snapshot> snapshot) {
  return std::make_unique<SubnetEntries>(std::move(site), std::move(snapshot));
}

std::unique_ptr<AnswerPayload> DensePayload(std::shared_ptr<const Snapshot> snapshot, int64_t begin,
                                            int64_t entries) {
  return std::make_unique<Borrowed>(std::move(snapshot), begin, entries);
}

std::unique_ptr<AnswerPayload> SubnetPayload(std::shared_ptr<const SiteSubnet> site,
                                             std::shared_ptr<const Snapshot> snapshot) {
  return std::make_unique<Gathered>(std::move(site), std::move(snapshot));
}

std::unique_ptr<AnswerPayload> CodedPayload(const CodedKeys& keys, const PayloadRandom& random,
                                            std::unique_ptr<EntrySource> source) {
  return std::make_unique<CodedAnswer>(keys, random, std::move(source));
}

}  // namespace tessera
