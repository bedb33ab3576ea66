// What the coordinator has a server's shard do, and what the shard answers: plans, promises, checkpoints, counters.
//
// A connection may break at any time, and the coordinator then says everything again. An order that was followed
// already is answered with the same answer; one that is being followed is answered when that is done.
#ifndef TESSERA_SERVER_RPC_SHARD_ORDERS_H_
#define TESSERA_SERVER_RPC_SHARD_ORDERS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/consistency/plan.h"
#include "proto/coordinator.pb.h"
#include "server/rpc/answer_queue.h"
#include "server/rpc/attach_options.h"

namespace tessera {

// Shared with the callbacks that the shard's thread may still hold when the link goes.
class ShardOrders : public std::enable_shared_from_this<ShardOrders> {
 public:
  // Answers go to `answers`.
  ShardOrders(AttachOptions options, std::shared_ptr<AnswerQueue> answers)
      : options_(std::move(options)), answers_(std::move(answers)) {}

  // Has the shard do what the message says of it. Called by one thread.
  void Follow(const v1::PlanMessage& message);
  // The message is a plan, where this server was to begin from a checkpoint and was never told to read it.
  bool BeginsAnew(const v1::PlanMessage& message) const;
  // Asks the shard for its counters; they are sent when they come. `is_last`: with the hash of the parameters, and
  // nothing is counted after them. Others are asked for only if the last were answered.
  void Report(bool is_last);

  // The latest plan, and the counters that were sent last.
  Generation generation() const;
  v1::ServerCounters counters() const;

 private:
  void FollowPlan(const v1::Plan& message);
  void Promise(const v1::Proposal& proposal);
  void SaveCheckpoint(const v1::CheckpointOrder& order);
  void Restore(const v1::RestoreOrder& order);

  const AttachOptions options_;
  const std::shared_ptr<AnswerQueue> answers_;
  mutable absl::Mutex mutex_;
  Plan plan_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_proposal_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::ShardMessage last_promise_ ABSL_GUARDED_BY(mutex_);  // empty: it is not there yet
  v1::ShardMessage last_part_ ABSL_GUARDED_BY(mutex_);
  uint64_t restoring_ ABSL_GUARDED_BY(mutex_) = 0;  // a generation
  v1::ShardMessage last_restored_ ABSL_GUARDED_BY(mutex_);
  bool is_reporting_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_reported_last_ ABSL_GUARDED_BY(mutex_) = false;
  v1::ServerCounters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_SHARD_ORDERS_H_
