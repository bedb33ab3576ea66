// What AttachLink's threads and the shard's callbacks share.
#ifndef TESSERA_SERVER_RPC_ATTACH_LINK_STATE_H_
#define TESSERA_SERVER_RPC_ATTACH_LINK_STATE_H_

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/steady_clock.h"
#include "common/base/wakeup.h"
#include "common/rpc/coordinator_contact.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/rpc/attach_link.h"
#include "server/rpc/coordinator_stream.h"

namespace tessera {

// Shared with the callbacks that the shard's thread may still hold when the link goes.
struct AttachLink::State : std::enable_shared_from_this<AttachLink::State> {
  using Stream = CoordinatorStream<v1::Coordinator, v1::ShardMessage, v1::PlanMessage>;

  explicit State(Options o)
      : options(std::move(o)),
        stream(options.coordinator, options.find_coordinator, options.open_channel),
        contact(options.lease_timeout, SteadyNow()) {
    std::random_device device;
    hello.set_life(options.life != 0 ? options.life : (uint64_t{device()} << 32) | device() | 1);
    hello.set_rank(options.rank);
    hello.set_lead_term(options.lead_term);
    hello.set_job_digest(options.job_digest);
    hello.set_job_text(options.job_text);
    hello.set_address(options.address);
    hello.set_layout_hash(options.shard->traits().layout_hash);
    hello.set_parameter_bytes(options.shard->traits().slices.bytes());
  }

  void Read();
  // One connection, until it ends. Its status.
  absl::Status Converse();
  // Empty: the message is one to be handled.
  std::string WhyToEnd(const v1::PlanMessage& message);
  void Write();
  // What is queued first. Whether there is more.
  bool WriteNext(Stream::Stream* to);
  void Handle(const v1::PlanMessage& message);
  // It is told a plan, and was to begin from a checkpoint.
  bool BeginsAnew(const v1::PlanMessage& message);
  void HandlePlan(const v1::Plan& message);
  void HandlePropose(const v1::Proposal& proposal);
  void HandleWithdraw(uint64_t last);
  void HandleLeave(const v1::LeaveAnswer& answer);
  void HandleCheckpoint(const v1::CheckpointOrder& order);
  void HandleRestore(const v1::RestoreOrder& order);
  // Asks the shard for counters; they are sent when they come.
  void Inspect(bool closing);
  void Queue(v1::ShardMessage message) {
    {
      absl::MutexLock lock(&mutex);
      if (connected) queue.push_back(std::move(message));
    }
    write.Notify();
  }
  // Both threads have to look whether this is the end.
  void Wake() {
    pause.Notify();
    write.Notify();
  }
  void End(absl::Status status);
  // How long the coordinator may be silent before this server ends.
  absl::Duration patience() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (draining) return options.lease_timeout;  // There is nothing to go on with.
    return contact.patience();
  }
  // False: it is not to be believed, and the connection is to end.
  bool Heed(const v1::PlanMessage& message);
  void SetAway(bool away, absl::Duration silence);
  // What is true by the time that others have told what they had to tell. Not with the mutex.
  void TellAway();
  bool Stopping() {
    absl::MutexLock lock(&mutex);
    return stopping || ended;
  }

  const Options options;
  v1::ServerHello hello;  // constant, but for run and term, which are the reading thread's
  Wakeup pause;           // of the thread that reads
  Wakeup write;           // there is something to write
  Stream stream;
  // Of whoever tells that the coordinator is away or back: both threads do, and what is told last has to be what is
  // true. Taken before `mutex`, and held while calling out.
  absl::Mutex telling;
  bool told_away ABSL_GUARDED_BY(telling) = false;  // on_away has heard this, or is about to
  absl::Mutex mutex;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  bool connected ABSL_GUARDED_BY(mutex) = false;
  CoordinatorContact contact ABSL_GUARDED_BY(mutex);
  bool is_away ABSL_GUARDED_BY(mutex) = false;
  absl::Duration silence_then ABSL_GUARDED_BY(mutex);  // the coordinator's, when is_away changed
  std::deque<v1::ShardMessage> queue ABSL_GUARDED_BY(mutex);
  bool inspecting ABSL_GUARDED_BY(mutex) = false;
  bool draining ABSL_GUARDED_BY(mutex) = false;
  bool has_closed ABSL_GUARDED_BY(mutex) = false;  // the last counters are written
  bool leaving ABSL_GUARDED_BY(mutex) = false;
  std::string job_failure ABSL_GUARDED_BY(mutex);
  Plan plan ABSL_GUARDED_BY(mutex);
  uint64_t last_proposal ABSL_GUARDED_BY(mutex) = 0;
  v1::ShardMessage last_answer ABSL_GUARDED_BY(mutex);
  v1::ServerCounters counters ABSL_GUARDED_BY(mutex);
  v1::ShardMessage last_part ABSL_GUARDED_BY(mutex);
  uint64_t restoring ABSL_GUARDED_BY(mutex) = 0;  // a generation
  v1::ShardMessage last_restored ABSL_GUARDED_BY(mutex);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_ATTACH_LINK_STATE_H_
