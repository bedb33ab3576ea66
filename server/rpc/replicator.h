// Sends what a leading shard does to its standby, in one stream (proto/replication.proto).
//
// Values go from where they lie. A stream that has ended, or stands still, is not made anew: what the standby
// has by then only the coordinator knows, and it orders another one.
#ifndef TESSERA_SERVER_RPC_REPLICATOR_H_
#define TESSERA_SERVER_RPC_REPLICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/replication.pb.h"
#include "server/rpc/log_queue.h"
#include "server/shard/log/log_sink.h"
#include "server/shard/shard_thread.h"

namespace tessera {

class Replicator final : public LogSink, public std::enable_shared_from_this<Replicator> {
 public:
  struct Options {
    std::string address;
    // Digest, shard, term and layout.
    v1::LogHeader header;
    // Outlives the stream: End comes before its end.
    ShardThread* shard = nullptr;
    // Bytes of values that may wait to be sent; past that the standby is too slow.
    int64_t queue_bytes_max = 0;
    // The time for which the standby may take nothing of what is there for it, and say nothing.
    absl::Duration silence_max = absl::InfiniteDuration();
    // Grows by the values that are sent; nullptr: nobody counts them.
    std::shared_ptr<std::atomic<uint64_t>> payload_bytes;
    // Something of report() has changed. Any thread.
    std::function<void()> on_change;
  };

  static std::shared_ptr<Replicator> Make(Options options);

  // The shard is told to feed this.
  void Start();
  // Nothing is sent, and the shard is told nothing, afterwards.
  void End();
  // Gives a standby up that has stood still for too long (LogQueue::CheckProgress). To be called every now and then.
  void CheckProgress(absl::Time now);
  v1::LeaderReport report() const;
  uint64_t term() const { return options_.header.term(); }

  // --- LogSink ---
  void Begin(bool copies) override;
  void Add(uint64_t position, Version version, ShardEvent event) override;
  void OnInSync() override;
  void Break(const std::string& why) override;

 private:
  class Call;

  explicit Replicator(Options options);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnWritten(bool ok);
  void OnAck(uint64_t position);
  void OnEnded(const std::string& why);
  // The stream ends where the queue is broken.
  void EndBroken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  std::unique_ptr<grpc::GenericStub> stub_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Call> call_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  LogQueue queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_REPLICATOR_H_
