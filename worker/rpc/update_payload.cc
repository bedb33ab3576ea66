#include "worker/rpc/update_payload.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/rpc/borrowed_slice.h"

namespace tessera {
namespace {

// Entries that are coded at a time where buckets have no headers: 16 KiB of floats, which stay in the first-level
// cache.
constexpr int64_t kTileEntries = 4096;

class Plain final : public UpdatePayload {
 public:
  explicit Plain(UpdateRuns* runs) : runs_(*runs) {}

  int64_t bytes() const override { return runs_.left() + runs_.done(); }
  int64_t left() const override { return runs_.left(); }
  void Rewind() override { runs_.Rewind(); }
  std::vector<grpc::Slice> Next(int64_t room, const std::shared_ptr<const void>& memory) override {
    std::vector<grpc::Slice> slices;
    // Slices borrow the update's own memory: nothing is copied.
    runs_.Take(std::min(room, runs_.left()), [&](const char* data, int64_t size) {
      slices.push_back(BorrowSlice(data, size, memory));
    });
    return slices;
  }

 private:
  UpdateRuns& runs_;
};

// Encodes `runs` into `room` bytes at `out` with Encoder or FeedbackEncoder; returns the bytes
// written. A bucket lies in one run.
template <typename AnyEncoder>
int64_t EncodeRuns(AnyEncoder* encoder, UpdateRuns* runs, char* out, int64_t room) {
  int64_t written = 0;
  while (encoder->left() > 0) {
    const Encoder::Ahead ahead = encoder->ahead();
    const int64_t wanted = ahead.whole ? ahead.entries : std::min(ahead.entries, kTileEntries);
    // A bucket with a header is encoded whole, since its header comes first and needs all of it.
    const auto [entries, run] = runs->Ahead();
    const int64_t count = std::min(wanted, run);
    const Encoder::Step step = encoder->Encode(entries, count, out + written, room - written);
    runs->Skip(step.entries);
    written += step.bytes;
    // The room is full: the next chunk goes on with this run.
    if (step.entries < count) break;
  }
  return written;
}

// Room that is not written is not touched.
std::shared_ptr<char> NewBytes(int64_t size) {
  return std::shared_ptr<char>(new char[size], std::default_delete<char[]>());
}

class Coded final : public UpdatePayload {
 public:
  Coded(CodedKeys keys, const PayloadRandom& random, UpdateRuns* runs)
      : keys_(std::move(keys)), random_(random), runs_(*runs) {
    encoder_.emplace(keys_, random_);
  }

  int64_t bytes() const override { return keys_.bytes(); }
  int64_t left() const override { return encoder_->left(); }
  // Coded once more, with the same random numbers, to the same bytes.
  void Rewind() override {
    runs_.Rewind();
    encoder_.emplace(keys_, random_);
  }
  std::vector<grpc::Slice> Next(int64_t room, const std::shared_ptr<const void>& memory) override {
    room = std::min(room, left());
    const std::shared_ptr<char> bytes = NewBytes(room);
    const int64_t written = EncodeRuns(&*encoder_, &runs_, bytes.get(), room);
    return {BorrowSlice(bytes.get(), written, bytes)};
  }

 private:
  const CodedKeys keys_;
  const PayloadRandom random_;
  UpdateRuns& runs_;
  std::optional<Encoder> encoder_;
};

class Feedback final : public UpdatePayload {
 public:
  Feedback(CodedKeys keys, const PayloadRandom& random, UpdateRuns* runs,
           const ResidualCursor& residual)
      : keys_(std::move(keys)),
        runs_(*runs),
        residual_(residual),
        encoder_(keys_, random),
        feedback_(&encoder_, &residual_),
        left_(keys_.bytes()) {}

  int64_t bytes() const override { return keys_.bytes(); }
  int64_t left() const override { return left_; }
  // What was made is sent again as it is: a second encoding would take from the residual twice.
  void Rewind() override {
    left_ = keys_.bytes();
    next_ = 0;
  }
  std::vector<grpc::Slice> Next(int64_t room, const std::shared_ptr<const void>&) override {
    // Made when it is first asked for, so that coding goes beside sending.
    if (next_ == made_.size()) {
      room = std::min(room, encoder_.left());
      const std::shared_ptr<char> bytes = NewBytes(room);
      const int64_t written = EncodeRuns(&feedback_, &runs_, bytes.get(), room);
      made_.push_back(BorrowSlice(bytes.get(), written, bytes));
    }
    left_ -= static_cast<int64_t>(made_[next_].size());
    return {made_[next_++]};
  }

 private:
  const CodedKeys keys_;
  UpdateRuns& runs_;
  ResidualCursor residual_;
  Encoder encoder_;
  FeedbackEncoder feedback_;
  int64_t left_;
  std::vector<grpc::Slice> made_;
  size_t next_ = 0;  // of made_, to be sent
};

class Made final : public UpdatePayload {
 public:
  explicit Made(std::shared_ptr<const std::vector<char>> bytes) : bytes_(std::move(bytes)) {}

  int64_t bytes() const override { return static_cast<int64_t>(bytes_->size()); }
  int64_t left() const override { return bytes() - done_; }
  void Rewind() override { done_ = 0; }
  std::vector<grpc::Slice> Next(int64_t room, const std::shared_ptr<const void>&) override {
    const int64_t size = std::min(room, left());
    const char* const begin = bytes_->data() + done_;
    done_ += size;
    return {BorrowSlice(begin, size, bytes_)};
  }

 private:
  const std::shared_ptr<const std::vector<char>> bytes_;
  int64_t done_ = 0;
};

class Borrowed final : public UpdatePayload {
 public:
  Borrowed(const char* data, int64_t size) : data_(data), size_(size) {}

  int64_t bytes() const override { return size_; }
  int64_t left() const override { return size_ - done_; }
  void Rewind() override { done_ = 0; }
  std::vector<grpc::Slice> Next(int64_t room, const std::shared_ptr<const void>& memory) override {
    const int64_t size = std::min(room, left());
    const char* const begin = data_ + done_;
    done_ += size;
    return {BorrowSlice(begin, size, memory)};
  }

 private:
  const char* const data_;
  const int64_t size_;
  int64_t done_ = 0;
};

class Prefixed final : public UpdatePayload {
 public:
  Prefixed(std::string bytes, std::unique_ptr<UpdatePayload> rest)
      : prefix_(std::make_shared<const std::vector<char>>(bytes.begin(), bytes.end())),
        rest_(std::move(rest)) {}

  int64_t bytes() const override { return prefix_.bytes() + rest_->bytes(); }
  int64_t left() const override { return prefix_.left() + rest_->left(); }
  void Rewind() override {
    prefix_.Rewind();
    rest_->Rewind();
  }
  std::vector<grpc::Slice> Next(int64_t room, const std::shared_ptr<const void>& memory) override {
    return prefix_.left() > 0 ? prefix_.Next(room, memory) : rest_->Next(room, memory);
  }

 private:
  Made prefix_;
  const std::unique_ptr<UpdatePayload> rest_;
};

}  // namespace

std::unique_ptr<UpdatePayload> PrefixedUpdate(std::string bytes,
                                              std::unique_ptr<UpdatePayload> rest) {
  return std::make_unique<Prefixed>(std::move(bytes), std::move(rest));
}

std::unique_ptr<UpdatePayload> PlainUpdate(UpdateRuns* runs) {
  return std::make_unique<Plain>(runs);
}

std::unique_ptr<UpdatePayload> CodedUpdate(CodedKeys keys, const PayloadRandom& random,
                                           UpdateRuns* runs) {
  return std::make_unique<Coded>(std::move(keys), random, runs);
}

std::unique_ptr<UpdatePayload> FeedbackUpdate(CodedKeys keys, const PayloadRandom& random,
                                              UpdateRuns* runs, const ResidualCursor& residual) {
  return std::make_unique<Feedback>(std::move(keys), random, runs, residual);
}

std::unique_ptr<UpdatePayload> BorrowedUpdate(const char* bytes, int64_t size) {
  return std::make_unique<Borrowed>(bytes, size);
}

std::unique_ptr<UpdatePayload> MadeUpdate(std::vector<char> bytes) {
  return MadeUpdate(std::make_shared<const std::vector<char>>(std::move(bytes)));
}

std::unique_ptr<UpdatePayload> MadeUpdate(std::shared_ptr<const std::vector<char>> bytes) {
  return std::make_unique<Made>(std::move(bytes));
}

}  // namespace tessera
