#include "server/rpc/replicator.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/rpc/borrowed_slice.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"

namespace tessera {
namespace {

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
  // gRPC holds only a reference to the message until OnWriteDone.
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
      Log(LogLevel::kInfo,
          absl::StrCat("standby: stream ended shard=", owner_->options_.header.shard(), " why=\"",
                       status.error_message(), "\""));
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

Replicator::Replicator(Options options)
    : options_(std::move(options)),
      queue_(options_.header, options_.queue_bytes_max, options_.silence_max) {}

std::shared_ptr<Replicator> Replicator::Make(Options options) {
  return std::shared_ptr<Replicator>(new Replicator(std::move(options)));
}

// The gate is the shard thread's, which begins with this standby when no update is half collected.
void Replicator::Start() {
  options_.shard->Post(
      [self = shared_from_this()](ServedShard& served) { served.gate().SetStandby(self); });
}

void Replicator::End() {
  absl::MutexLock lock(&mutex_);
  // Breaking the queue first keeps everybody from writing to the call that ends.
  queue_.Break("it was ended");
  EndBroken();
}

void Replicator::CheckProgress(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (queue_.CheckProgress(now)) EndBroken();
}

v1::LeaderReport Replicator::report() const {
  absl::MutexLock lock(&mutex_);
  return queue_.report();
}

void Replicator::Begin(bool copies) {
  absl::MutexLock lock(&mutex_);
  if (queue_.broken()) return;
  queue_.Begin(copies, SteadyNow());
  // The stream begins with the first entry: until then there is nothing to be late with.
  stub_ = std::make_unique<grpc::GenericStub>(OpenChannel(options_.address));
  call_ = std::make_shared<Call>(shared_from_this());
  call_->Start(stub_.get());
  WriteNext();
}

void Replicator::Add(uint64_t position, Version version, ShardEvent event) {
  LogQueue::Entry entry = LogQueue::ToEntry(position, version, std::move(event));
  absl::MutexLock lock(&mutex_);
  // The queue may break by this entry.
  queue_.Add(std::move(entry), SteadyNow());
  EndBroken();
  if (!writing_) WriteNext();
}

void Replicator::OnInSync() {
  {
    absl::MutexLock lock(&mutex_);
    if (queue_.broken()) return;
    queue_.SetInSync();
  }
  Log(LogLevel::kInfo, absl::StrCat("standby: in sync shard=", options_.header.shard(),
                                    " term=", options_.header.term(), " at=", options_.address));
  options_.on_change();
}

void Replicator::Break(const std::string& why) { OnEnded(why); }

void Replicator::OnEnded(const std::string& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (!queue_.Break(why.empty() ? "the stream to the standby ended" : why)) return;
    EndBroken();
  }
  // Told without the lock, as the coordinator's answer may come back here.
  options_.on_change();
}

// The call ends later, on a thread of gRPC, which holds it until then.
void Replicator::EndBroken() {
  if (queue_.broken() && call_ != nullptr) std::exchange(call_, nullptr)->End();
}

void Replicator::OnAck(uint64_t position) {
  {
    absl::MutexLock lock(&mutex_);
    if (queue_.broken()) return;
    // The gate asks who acknowledges, as another standby may have come meanwhile.
    if (queue_.OnAcknowledged(position, SteadyNow())) {
      return options_.shard->Post([self = shared_from_this(), position](ServedShard& served) {
        served.gate().OnAcknowledged(self.get(), position);
      });
    }
    EndBroken();
  }
  options_.on_change();
}

void Replicator::OnWritten(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (ok) queue_.OnWritten(SteadyNow());
  if (ok) WriteNext();  // Otherwise the read that fails tells.
}

// One write is under way at a time, as gRPC wants it; its values are sent from where the shard keeps them.
void Replicator::WriteNext() {
  if (writing_) return;
  std::optional<LogQueue::Message> next = queue_.Next(kChunkBytes);
  if (!next.has_value()) return;
  if (options_.payload_bytes != nullptr) {
    options_.payload_bytes->fetch_add(static_cast<uint64_t>(next->values.size()),
                                      std::memory_order_relaxed);
  }
  const auto values = std::make_shared<const Payload>(std::move(next->values));
  std::vector<grpc::Slice> slices;
  for (const Payload::Piece& piece : values->pieces()) {
    slices.push_back(BorrowSlice(piece.data, piece.size, values));
  }
  writing_ = true;
  call_->Write(WriteChunk(next->head, slices));
}

}  // namespace tessera
