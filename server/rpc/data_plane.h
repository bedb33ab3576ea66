// What all calls of one server's data plane share: the shard, who may speak, and what was moved.
#ifndef TESSERA_SERVER_RPC_DATA_PLANE_H_
#define TESSERA_SERVER_RPC_DATA_PLANE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "common/base/log_throttle.h"
#include "common/rpc/call_limit.h"
#include "common/rpc/shared_memory/memory_door.h"
#include "proto/parameter_server.pb.h"
#include "server/rpc/message_limits.h"
#include "server/rpc/unread_replies.h"
#include "server/shard/shard_thread.h"

namespace tessera {

// Pushes of one host of which not even the header has come, where the job does not say how many workers
// there may be.
constexpr int64_t kHalfOpenPushesPerHost = 64;
// Pushes of one member. It makes one at a time; one that it began anew may still be here.
constexpr size_t kPushesPerMemberMax = 4;

// Bytes of answers that were made for the readers of one host and that they have not taken, where the job does not say
// how many workers there may be. All hosts together have twice as many.
constexpr int64_t kUnreadAnswerBytes = int64_t{64} << 20;

// Bytes since the start. Payload is what codecs wrote; wire adds framing (common/rpc/transport.h).
struct DataPlaneTraffic {
  uint64_t pull_payload_bytes = 0;
  uint64_t pull_wire_bytes = 0;
  uint64_t push_payload_bytes = 0;
  uint64_t push_wire_bytes = 0;
  // Answers to reads outside the exchange.
  uint64_t other_payload_bytes = 0;
  // What other servers have copied of this replica.
  uint64_t copied_payload_bytes = 0;
  uint64_t readers_cut_off = 0;
};

// An answer that is being sent and may be cut off.
class ActiveReader {
 public:
  virtual ~ActiveReader() = default;
  // Ends the call if the shard has taken its snapshot back.
  virtual void CutOffIfRevoked() = 0;
};

// Any thread.
class DataPlane {
 public:
  // `shard` must outlive the calls.
  DataPlane(ShardThread* shard, std::string job_digest, Generation generation)
      : shard_(shard), job_digest_(std::move(job_digest)), generation_(generation.value()) {}

  ShardThread& shard() { return *shard_; }
  Generation generation() const { return Generation(generation_.load(std::memory_order_relaxed)); }
  // Callers of an older one are refused from now on.
  void SetGeneration(Generation generation) {
    generation_.store(generation.value(), std::memory_order_relaxed);
  }

  // The shard's link has not heard the coordinator for a lease: the others may have gone on without it, and nobody
  // is to train with what it has.
  void SetAway(bool away) { away_.store(away, std::memory_order_relaxed); }

  // Is this a worker of this job? `where` begins the message.
  //   kInvalidArgument     another job
  //   kFailedPrecondition  no member, or of an older generation
  //   kUnavailable         the coordinator is away
  absl::Status CheckCaller(absl::string_view where, const v1::Caller& caller) const;
  // Checks only that the caller is of this job. kInvalidArgument: it is of another.
  absl::Status CheckJob(absl::string_view where, const v1::Caller& caller) const;

  // --- counting ---
  void CountPull(int64_t payload_bytes, int64_t wire_bytes, bool outside_exchange);
  void CountPush(int64_t payload_bytes, int64_t wire_bytes);
  void CountCopied(int64_t payload_bytes) {
    copied_payload_bytes_.fetch_add(payload_bytes, std::memory_order_relaxed);
  }
  void CountCutOff() { readers_cut_off_.fetch_add(1, std::memory_order_relaxed); }
  DataPlaneTraffic traffic() const;

  // Pushes that may have to give way, by member.
  CallLimit& member_pushes() { return member_pushes_; }

  // --- readers whose snapshot may be taken back while gRPC waits for their network ---
  void AddReader(ActiveReader* reader);
  // No call on `reader` is under way afterwards.
  void RemoveReader(ActiveReader* reader);
  // Called when something has been pushed, which is when snapshots are taken back.
  void CutOffRevoked();

 private:
  ShardThread* const shard_;
  const std::string job_digest_;
  std::atomic<uint64_t> generation_;
  std::atomic<bool> away_{false};
  std::atomic<uint64_t> pull_payload_bytes_{0};
  std::atomic<uint64_t> pull_wire_bytes_{0};
  std::atomic<uint64_t> push_payload_bytes_{0};
  std::atomic<uint64_t> push_wire_bytes_{0};
  std::atomic<uint64_t> other_payload_bytes_{0};
  std::atomic<uint64_t> copied_payload_bytes_{0};
  std::atomic<uint64_t> readers_cut_off_{0};
  CallLimit member_pushes_{kPushesPerMemberMax};
  absl::Mutex mutex_;
  std::vector<ActiveReader*> readers_ ABSL_GUARDED_BY(mutex_);
};

// The shards that a server leads: one, unless it has taken over another's. Any thread.
class DataPlanes {
 public:
  // Who names no shard means `own`.
  DataPlanes(ShardId own, std::string job_digest, int64_t half_open_pushes_per_host,
             int64_t unread_bytes_per_host)
      : unread_answers_({unread_bytes_per_host, 2 * unread_bytes_per_host}),
        own_(own),
        job_digest_(std::move(job_digest)),
        half_open_pushes_(static_cast<size_t>(half_open_pushes_per_host)) {}

  // `shard` must outlive the calls. The plane stays until the end; another time is no change.
  DataPlane* Add(ShardThread* shard);
  // kUnavailable: another server leads it, or another process is meant
  absl::StatusOr<DataPlane*> Find(absl::string_view where, const v1::Caller& caller) const;
  // This process's number, for callers that name one.
  void SetLife(uint64_t life);
  // The number that the run's servers have been told: a whole replica is copied for those who know it.
  void SetServerKey(uint64_t key) { server_key_.store(key, std::memory_order_relaxed); }
  uint64_t server_key() const { return server_key_.load(std::memory_order_relaxed); }
  // The generation of all shards that there are and will be.
  void SetGeneration(Generation generation);
  // The coordinator is away for one shard, whether or not that is here yet: each has a link of its own, and one that
  // hears the coordinator does not speak for the others.
  void SetAway(ShardId shard, bool away);
  // Payloads of callers on this machine go by memory from now on. Before the first call.
  // `listener` is told what they say on their links, and outlives this.
  //   kUnavailable  the system does not let this process share memory
  absl::Status ShareMemory(LinkListener* listener);
  // nullptr: this process shares none.
  MemoryDoor* door() const { return door_.get(); }
  // The link that the caller names; nullptr: none, or one that has ended.
  std::shared_ptr<MemoryLink> FindLink(const v1::Caller& caller) const;
  // What has been moved for all shards, and for one.
  DataPlaneTraffic traffic() const;
  DataPlaneTraffic traffic(ShardId shard) const;
  // Pushes whose header has not come and that may have to give way, by host (NumberOfHost).
  CallLimit& half_open_pushes() { return half_open_pushes_; }
  // Answers that were made for one call and that its reader has not taken.
  UnreadReplies& unread_answers() { return unread_answers_; }
  // One of them ends, whose message begins with `where`.
  void TellUnread(absl::string_view where);

 private:
  LogThrottle unread_told_{kRefusalsLogged, kRefusalsInterval};
  UnreadReplies unread_answers_;
  std::atomic<uint64_t> server_key_{0};  // 0 until it is known
  const ShardId own_;
  const std::string job_digest_;
  CallLimit half_open_pushes_;
  std::unique_ptr<MemoryDoor> door_;
  mutable absl::Mutex mutex_;
  Generation generation_ ABSL_GUARDED_BY(mutex_);
  std::set<ShardId> away_ ABSL_GUARDED_BY(mutex_);
  uint64_t life_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: whoever is meant
  std::map<ShardId, std::unique_ptr<DataPlane>> planes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_DATA_PLANE_H_
