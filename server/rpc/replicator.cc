#include "server/rpc/replicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/rpc/borrowed_slice.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "server/rpc/shard_log_message.h"

namespace tessera {
namespace {

// Entries without values that go together: well under a head's limit, with one that is as large as a
// single one may be.
constexpr size_t kEntryBytes = size_t{8} << 10;

const std::string& FollowMethod() {
  static const auto* const name = new std::string("/tessera.v1.Replication/Follow");
  return *name;
}

}  // namespace

// Keeps itself alive until gRPC is done with it.
class Replicator::Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                               public std::enable_shared_from_this<Call> {
 public:
  explicit Call(std::shared_ptr<Replicator> owner) : owner_(std::move(owner)) {}

  void Start(grpc::GenericStub* stub) {
    self_ = shared_from_this();
    stub->PrepareBidiStreamingCall(&context_, FollowMethod(), {}, this);
    // Writes come from outside the call's own callbacks, until End.
    AddHold();
    StartRead(&ack_);
    StartCall();
  }
  void Write(grpc::ByteBuffer message) {
    message_ = std::move(message);
    StartWrite(&message_);
  }
  // Once, and no Write afterwards.
  void End() {
    context_.TryCancel();
    RemoveHold();
  }

  void OnWriteDone(bool ok) override { owner_->OnWritten(ok); }
  void OnReadDone(bool ok) override {
    if (!ok) return owner_->OnEnded("");
    v1::LogAck ack;
    const absl::Status read = ReadMessage(ack_, &ack);
    ack_.Clear();
    if (!read.ok()) return owner_->OnEnded(std::string(read.message()));
    owner_->OnAck(ack.position());
    StartRead(&ack_);
  }
  void OnDone(const grpc::Status& status) override {
    if (!status.ok()) {
      Log(LogLevel::kInfo, absl::StrCat("standby: stream ended shard=", owner_->options_.header.shard(),
                                        " why=\"", status.error_message(), "\""));
    }
    const std::shared_ptr<Call> self = std::move(self_);
  }

 private:
  const std::shared_ptr<Replicator> owner_;
  std::shared_ptr<Call> self_;
  grpc::ClientContext context_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer ack_;
};

std::shared_ptr<Replicator> Replicator::Make(Options options) {
  std::shared_ptr<Replicator> made(new Replicator(std::move(options)));
  absl::MutexLock lock(&made->mutex_);
  made->report_.set_shard(made->options_.header.shard());
  made->report_.set_term(made->options_.header.term());
  return made;
}

void Replicator::Start() { options_.shard->SetStandby(shared_from_this()); }

void Replicator::End() {
  absl::MutexLock lock(&mutex_);
  BreakLocked("it was ended");
}

void Replicator::CheckProgress(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const absl::Duration pause = now - std::exchange(checked_, now);
  if (pause > options_.silence_max / 2) moved_ = now;
  if (ended_ || !IsOwed() || now - moved_ <= options_.silence_max) return;
  const std::string why =
      absl::StrCat("the standby has not answered for ",
                   absl::FormatDuration(absl::Trunc(now - moved_, absl::Milliseconds(1))));
  BreakLocked(why);
}

v1::LeaderReport Replicator::report() const {
  absl::MutexLock lock(&mutex_);
  return report_;
}

void Replicator::Begin(bool copies) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  header_ = options_.header;
  header_->set_copies(copies);
  moved_ = SteadyNow();
  stub_ = std::make_unique<grpc::GenericStub>(OpenChannel(options_.address));
  call_ = std::make_shared<Call>(shared_from_this());
  call_->Start(stub_.get());
  WriteNext();
}

void Replicator::Add(uint64_t position, Version version, ShardEvent event) {
  Queued queued;
  queued.entry = ToMessage(std::move(event), &queued.payload);
  queued.entry.set_position(position);
  queued.entry.set_version(version.value());
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  // An image is always taken.
  const bool is_too_much =
      queued_bytes_ > 0 && queued_bytes_ + queued.payload.size() > options_.queue_bytes_max;
  if (is_too_much && !queued.entry.has_image()) return BreakLocked("the standby is too slow");
  if (!IsOwed()) moved_ = SteadyNow();
  added_ = position;
  queued_bytes_ += queued.payload.size();
  queue_.push_back(std::move(queued));
  if (!writing_) WriteNext();
}

void Replicator::OnInSync() {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    report_.set_in_sync(true);
  }
  Log(LogLevel::kInfo, absl::StrCat("standby: in sync shard=", options_.header.shard(),
                                    " term=", options_.header.term(), " at=", options_.address));
  options_.on_change();
}

void Replicator::Break(const std::string& why) { OnEnded(why); }

void Replicator::OnEnded(const std::string& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    BreakLocked(why.empty() ? "the stream to the standby ended" : why);
  }
  options_.on_change();
}

void Replicator::BreakLocked(const std::string& why) {
  if (ended_) return;
  ended_ = true;
  report_.set_broken(why);
  queue_.clear();
  sending_.reset();
  if (call_ != nullptr) std::exchange(call_, nullptr)->End();
}

void Replicator::OnAck(uint64_t position) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  has_answered_ = true;
  acknowledged_ = position;
  moved_ = SteadyNow();
  options_.shard->OnAcknowledged(shared_from_this(), position);
}

void Replicator::OnWritten(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (ok) moved_ = SteadyNow();
  if (ok) WriteNext();  // Otherwise the read that fails tells.
}

void Replicator::WriteNext() {
  if (ended_ || writing_) return;
  grpc::ByteBuffer message;
  if (!NextMessage(&message)) return;
  writing_ = true;
  call_->Write(std::move(message));
}

bool Replicator::NextMessage(grpc::ByteBuffer* message) {
  v1::LogChunk head;
  size_t entry_bytes = 0;
  bool has_any = header_.has_value();
  if (has_any) *head.mutable_header() = *std::exchange(header_, std::nullopt);
  while (sending_ == nullptr && !queue_.empty() && entry_bytes < kEntryBytes) {
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    entry_bytes += next.entry.ByteSizeLong();
    *head.add_entries() = std::move(next.entry);
    has_any = true;
    if (next.payload.size() == 0) continue;
    sending_ = std::make_shared<const Payload>(std::move(next.payload));
    piece_ = 0;
    offset_ = 0;
  }
  std::vector<grpc::Slice> slices;
  for (int64_t room = kChunkBytes; sending_ != nullptr && room > 0;) {
    const Payload::Piece& piece = sending_->pieces()[piece_];
    const int64_t taken = std::min(room, piece.size - offset_);
    slices.push_back(BorrowSlice(piece.data + offset_, taken, sending_));
    room -= taken;
    offset_ += taken;
    queued_bytes_ -= taken;
    report_.set_payload_bytes(report_.payload_bytes() + static_cast<uint64_t>(taken));
    if (offset_ < piece.size) continue;
    offset_ = 0;
    if (++piece_ == sending_->pieces().size()) sending_.reset();
  }
  if (!has_any && slices.empty()) return false;
  *message = WriteChunk(head, slices);
  return true;
}

}  // namespace tessera
