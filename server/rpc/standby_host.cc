#include "server/rpc/standby_host.h"

#include <utility>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "proto/replication.grpc.pb.h"

namespace tessera {

// One leader's stream. Deletes itself when the call is over.
class FollowCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit FollowCall(FollowedShards* shards) : log_(shards) { StartRead(&message_); }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());
    // The reader checks that positions follow each other; a gap ends the stream, and the leader begins it anew.
    const absl::Status status = TakeChunk();
    message_.Clear();
    if (!status.ok()) return End(status);
    Acknowledge();
    StartRead(&message_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    // What was applied while the last acknowledgement was written is acknowledged by one.
    if (ok && !finished_ && acknowledged_ != applied_) WriteNext();
  }

  void OnDone() override { delete this; }

 private:
  absl::Status TakeChunk() {
    v1::LogChunk chunk;
    // The payload shares the message's slices, which hold it after message_ is cleared.
    Payload payload;
    TESSERA_RETURN_IF_ERROR(ReadChunk(message_, &chunk, &payload));
    TESSERA_ASSIGN_OR_RETURN(position_, log_.Take(chunk, std::move(payload), SteadyNow()));
    return absl::OkStatus();
  }

  // Once. Nothing is acknowledged behind it.
  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      // An acknowledgement that is being written may be lost; the leader then sends from an image again.
      finished_ = true;
    }
    Finish(ToGrpc(status));  // After this the call may be gone.
  }

  void Acknowledge() {
    absl::MutexLock lock(&mutex_);
    applied_ = position_;
    // The first chunk is acknowledged even without an entry: the leader learns that somebody is here.
    if (!writing_ && (acknowledged_ != applied_ || !has_begun_)) WriteNext();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    has_begun_ = true;
    writing_ = true;
    acknowledged_ = applied_;
    v1::LogAck ack;
    ack.set_position(acknowledged_);
    ack_ = WriteMessage(ack);
    StartWrite(&ack_);
  }

  LogReader log_;
  grpc::ByteBuffer message_;
  // Only reads touch the position, and one read is under way at a time.
  uint64_t position_ = 0;
  absl::Mutex mutex_;
  grpc::ByteBuffer ack_ ABSL_GUARDED_BY(mutex_);
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t applied_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
};

class StandbyHost::Service final
    : public v1::Replication::WithRawCallbackMethod_Follow<v1::Replication::Service> {
 public:
  explicit Service(FollowedShards* shards) : shards_(shards) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Follow(
      grpc::CallbackServerContext* context) override {
    return new FollowCall(shards_);
  }

 private:
  FollowedShards* const shards_;
};

StandbyHost::StandbyHost(FollowedShards* shards) : service_(std::make_unique<Service>(shards)) {}

StandbyHost::~StandbyHost() = default;

grpc::Service* StandbyHost::service() { return service_.get(); }

}  // namespace tessera
