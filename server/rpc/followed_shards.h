// The shards that a process follows: copies of others', kept by doing what their leaders do. StandbyHost hears of
// them over gRPC, tests/sim over a simulated network.
#ifndef TESSERA_SERVER_RPC_FOLLOWED_SHARDS_H_
#define TESSERA_SERVER_RPC_FOLLOWED_SHARDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/codec/payload.h"
#include "proto/replication.pb.h"
#include "server/shard/log/shard_follower.h"
#include "server/shard/shard.h"

namespace tessera {

// One shard that is followed, in one term. Any thread.
class FollowedShard {
 public:
  explicit FollowedShard(std::unique_ptr<Shard> shard)
      : shard_(std::move(shard)), follower_(shard_.get()) {}

  // The next chunk of the log, at `now`. Returns the position up to which all is applied.
  //   kInvalidArgument     it does not fit what is here; the copy is of no use any more
  //   kFailedPrecondition  the copy leads by now
  absl::StatusOr<uint64_t> Take(const v1::LogChunk& chunk, Payload payload, absl::Time now);
  // What has come and is whole; nullptr if the copy is of no use, or was taken before. Nothing more is
  // taken, and so nothing acknowledged.
  std::unique_ptr<Shard> TakeOver();

 private:
  absl::Status Apply(const v1::LogEntry& entry, Payload payload, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A clock means nothing to another process: times of the log are told by this one's, all moved alike.
  void MoveTime(absl::Time now, ShardEvent* event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::optional<absl::Duration> clock_offset_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Shard> shard_ ABSL_GUARDED_BY(mutex_);
  ShardFollower follower_ ABSL_GUARDED_BY(mutex_);  // of use while shard_ is here
  uint64_t position_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<v1::LogEntry> partial_ ABSL_GUARDED_BY(mutex_);  // its values are still coming
  Payload received_ ABSL_GUARDED_BY(mutex_);                     // of them
  // Folds whose sum has not come, and what happened since the first of them.
  std::vector<std::pair<v1::LogEntry, ShardEvent>> held_ ABSL_GUARDED_BY(mutex_);
  size_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Any thread.
class FollowedShards {
 public:
  struct Options {
    std::string job_digest;
    uint64_t layout_hash = 0;
    // A shard as it is before the first update.
    std::function<std::unique_ptr<Shard>(ShardId)> make_shard;
  };

  explicit FollowedShards(Options options) : options_(std::move(options)) {}

  // The number that the run's servers have been told: logs are taken from those who know it. 0 until it is known.
  void SetServerKey(uint64_t key) {
    absl::MutexLock lock(&mutex_);
    server_key_ = key;
  }
  // The log of this term is taken once its shard is made; what there was of another term is dropped.
  void Follow(ShardId shard, uint64_t term);
  // Makes one that a log is to begin with, which may take longer than a leader would wait for its standby; false:
  // all are there. One thread at a time.
  bool PrepareOne();
  // Whose log is taken, for the coordinator, which then tells the leaders.
  void Fill(v1::HostMessage* message) const;
  // Shards that are not among these are dropped.
  void Keep(const std::set<ShardId>& shards);
  // Gives the shard away: from now on nobody's log of it is taken. nullptr: nothing, or nothing of use, is here.
  std::unique_ptr<Shard> TakeOver(ShardId shard);

  // A leader's stream begins.
  //   kInvalidArgument     another job or layout
  //   kFailedPrecondition  not of a server of this run, not the term that is followed, or the term has had its stream,
  //                        or its shard is not made
  absl::StatusOr<std::shared_ptr<FollowedShard>> Begin(const v1::LogHeader& header);

 private:
  struct Followed {
    bool is_prepared() const { return fresh != nullptr || copy != nullptr; }

    uint64_t term = 0;
    std::unique_ptr<Shard> fresh;         // for the stream that is to come, in whatever term
    std::shared_ptr<FollowedShard> copy;  // of the stream that is, or was, read
  };

  const Options options_;
  mutable absl::Mutex mutex_;
  uint64_t server_key_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<ShardId, Followed> shards_ ABSL_GUARDED_BY(mutex_);
};

// One leader's stream, as it is read. One thread at a time.
class LogReader {
 public:
  explicit LogReader(FollowedShards* shards) : shards_(shards) {}

  // The next chunk, at `now`. Returns the position up to which all is applied: that is to be acknowledged.
  // Errors, after which the stream is to end: FollowedShards::Begin's and FollowedShard::Take's.
  absl::StatusOr<uint64_t> Take(const v1::LogChunk& chunk, Payload payload, absl::Time now);

 private:
  FollowedShards* const shards_;
  std::shared_ptr<FollowedShard> shard_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_FOLLOWED_SHARDS_H_
