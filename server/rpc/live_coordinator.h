// The coordinator's state machine among real threads: one mutex, the clock, and who gets which
// message.
#ifndef TESSERA_SERVER_RPC_LIVE_COORDINATOR_H_
#define TESSERA_SERVER_RPC_LIVE_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/base/wakeup.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/control/coordinator.h"

namespace tessera {

// Owns the coordinator and a thread that ends leases. Every method may be called from any thread.
// It must outlive the services that use it, and their gRPC server.
class LiveCoordinator {
 public:
  // Takes a plan message to a server. Called under the mutex, in order: it must queue and return.
  using PlanSink = std::function<void(const v1::PlanMessage&)>;
  using HostSink = std::function<void(const v1::HostOrder&)>;
  using EvaluateDone = std::function<void(absl::StatusOr<v1::EvaluateReply>)>;

  // Takes what the coordinator wants done with checkpoints' folders. Called under the mutex: it must
  // queue and return. Before anybody attaches; without one nothing is done.
  void SetDisk(std::function<void(DiskTask)> disk) {
    absl::MutexLock lock(&mutex_);
    disk_ = std::move(disk);
  }

  // kInvalidArgument as Coordinator::Create.
  static absl::StatusOr<std::unique_ptr<LiveCoordinator>> Create(JobFacts facts);
  ~LiveCoordinator();

  // Runs `event(coordinator, now)` under the mutex, then sends what follows from it.
  template <typename Event>
  auto Run(Event event) {
    Answers answers;
    auto result = [&] {
      absl::MutexLock lock(&mutex_);
      auto value = event(*coordinator_, SteadyNow());
      answers = Dispatch();
      if (coordinator_->ended()) end_.Notify();
      return value;
    }();
    Deliver(std::move(answers));
    return result;
  }

  // --- a server's connection: `connection` names it ---
  // On error nothing is registered.
  absl::Status Attach(const v1::ServerHello& hello, const void* connection, PlanSink sink);
  // Dropped if the server has connected anew, or another one of its rank has.
  void OnShardMessage(const v1::ServerHello& hello, const void* connection,
                      const v1::ShardMessage& message);
  // Its sink is not called afterwards. No effect on a server that has connected anew.
  void Detach(const v1::ServerHello& hello, const void* connection);

  // --- a host's connection, as a server's ---
  absl::Status AttachHost(const v1::HostHello& hello, const void* connection, HostSink sink);
  void OnHostMessage(const v1::HostHello& hello, const void* connection,
                     const v1::HostMessage& message);
  void DetachHost(const v1::HostHello& hello, const void* connection);

  // --- a worker's evaluation: `call` names it ---
  // `done` is called once, from any thread and without the mutex, unless Forget comes first.
  void Evaluate(const v1::EvaluateRequest& request, const void* call, EvaluateDone done);
  // The caller has gone. True if `done` will not be called any more.
  bool Forget(MemberId member, const void* call);

  v1::JobStatus Status();
  // Blocks until the job has ended or `deadline` of SteadyNow; false: it runs on. One thread.
  bool AwaitEnd(absl::Time deadline);
  // OK: the job finished. Call when it has ended.
  absl::Status outcome();

 private:
  using Answers = std::vector<std::pair<EvaluateDone, absl::StatusOr<v1::EvaluateReply>>>;
  struct Sink {
    const void* connection = nullptr;
    PlanSink send;
  };
  struct HostEnd {
    const void* connection = nullptr;
    HostSink send;
  };
  struct Waiter {
    const void* call = nullptr;
    EvaluateDone done;
  };

  explicit LiveCoordinator(std::unique_ptr<Coordinator> coordinator);
  Answers Dispatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Deliver(Answers answers);
  void Tick();

  const absl::Duration tick_;
  absl::Mutex mutex_;
  std::unique_ptr<Coordinator> coordinator_ ABSL_GUARDED_BY(mutex_);
  std::map<ShardId, Sink> sinks_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, HostEnd> hosts_ ABSL_GUARDED_BY(mutex_);
  std::map<MemberId, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  std::function<void(DiskTask)> disk_ ABSL_GUARDED_BY(mutex_);
  Wakeup stop_;
  Wakeup end_;  // whenever the job may have ended
  std::thread ticker_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_LIVE_COORDINATOR_H_
