// A server's standing connection to the coordinator, that of server 0 included.
//
//   1. Connect and say hello.
//   2. Apply every plan message to the shard, in order, and acknowledge it.
//      Checkpoints are written and read through callbacks.
//   3. Send counters four times per lease, or every 250 ms.
//   4. On drain: send the last counters, with the hash of the parameters, and close.
//
// A broken connection is made anew; the coordinator repeats its plan, and applying it twice is
// harmless.
//
// A server that has not heard the coordinator for a lease stands still, as the others may have gone on
// without it: on_away. It ends once the coordinator has been away for as long as CoordinatorWord says. It
// believes no coordinator of an earlier term than it has heard of, and none of another run of the job.
#ifndef TESSERA_SERVER_RPC_ATTACH_LINK_H_
#define TESSERA_SERVER_RPC_ATTACH_LINK_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wakeup.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.pb.h"
#include "server/rpc/answer_queue.h"
#include "server/rpc/attach_options.h"
#include "server/rpc/contact_watch.h"
#include "server/rpc/coordinator_stream.h"
#include "server/rpc/shard_orders.h"

namespace tessera {

// Runs two threads from construction to destruction.
class AttachLink {
 public:
  using Options = AttachOptions;

  explicit AttachLink(Options options);
  // Closes the connection. on_end is not called afterwards.
  ~AttachLink();

  // This server wants to end while the job goes on; where the job keeps standbys its host says so. on_leave follows.
  void Leave();

  // What a server that is not the coordinator's can say of the job: itself.
  v1::JobStatus OwnStatus() const;
  // The last one that was heard.
  v1::CoordinatorWord word() const;
  // host:port, as far as it is known.
  std::string coordinator() const;

 private:
  using Stream = CoordinatorStream<v1::Coordinator, v1::ShardMessage, v1::PlanMessage>;
  enum class Phase {
    kRunning,
    kDraining,  // the coordinator has told that the job is over, and wants the last counters
    kReported,  // the last counters are written
    kEnded,     // on_end is called
  };

  // The reading thread: one connection after another.
  void Read();
  // One connection, until it ends. Its status.
  absl::Status Converse();
  // False: the message is of a coordinator that is not to be believed, and the connection is to end.
  bool Heed(const v1::PlanMessage& message);
  // Why this server is to end because of the message; empty: the message is one to be handled.
  std::string WhyToEnd(const v1::PlanMessage& message) const;
  void Handle(const v1::PlanMessage& message);
  // The connection has ended; `refusal` says why this server is to end, if it is.
  void AfterConnection(const std::string& refusal);

  // The writing thread: sends what is queued, asks for counters when it is time, and watches the lease.
  void Write();
  // Sends what is queued first. Whether there is more.
  bool WriteNext(Stream::Stream* to);

  bool IsStopping() const {
    absl::MutexLock lock(&mutex_);
    return stopping_ || phase_ == Phase::kEnded;
  }
  void End(absl::Status status);
  // Both threads have to look whether this is the end.
  void Wake() {
    pause_.Notify();
    answers_->Wake();
  }

  const Options options_;
  v1::ServerHello hello_;  // constant, but for what it has heard, which are the reading thread's
  // The shard's thread holds on to these two when the link goes.
  const std::shared_ptr<AnswerQueue> answers_;
  const std::shared_ptr<ShardOrders> orders_;
  ContactWatch contact_;
  Stream stream_;
  Wakeup pause_;  // of the reading thread
  mutable absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kRunning;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  std::string job_failure_ ABSL_GUARDED_BY(mutex_);
  std::thread reader_;
  std::thread writer_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_ATTACH_LINK_H_
