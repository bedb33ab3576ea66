// The coordinator's state machine among real threads: one mutex, the clock, who gets which message, and the store
// that its state is kept in. What may be told when is KeptCoordinator's.
//
// A thread writes the state, with the mutex free, at least every `state_age_max`. Where the store may lag, and
// takes longer than `kKeepPatience`, nothing waits until it has caught up.
//
// Where the servers elect a coordinator there is none here most of the time: Install and Vacate.
#ifndef TESSERA_SERVER_RPC_LIVE_COORDINATOR_H_
#define TESSERA_SERVER_RPC_LIVE_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/base/wakeup.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/control/coordinator.h"
#include "server/control/kept_coordinator.h"
#include "server/control/state_store.h"
#include "server/control/state_times.h"
#include "server/rpc/coordinator_clients.h"

namespace tessera {

// The moment of now, for states that are kept and that another coordinator goes on from.
StateMoment StateMomentNow();

// Where writing a state takes longer than this, nothing waits for a store that may lag, until it has caught up.
constexpr absl::Duration kKeepPatience = absl::Milliseconds(250);

// It has more fields than other classes, nearly all of them what its two threads and its callers agree by.
//
// Owns the coordinator, a thread that ends leases and one that writes its state. Every method may be called
// from any thread. It must outlive the services that use it, and their gRPC server.
class LiveCoordinator {
 public:
  // Sinks are called under the mutex.
  using PlanSink = CoordinatorClients::PlanSink;
  using HostSink = CoordinatorClients::HostSink;
  using EvaluateDone = CoordinatorClients::EvaluateDone;
  using StatusDone = std::function<void(const absl::Status&)>;

  // Takes what the coordinator wants done with checkpoints' folders. Called under the mutex: it must
  // queue and return. Before anybody attaches; without one nothing is done.
  void SetDisk(std::function<void(DiskTask)> disk) {
    absl::MutexLock lock(&mutex_);
    disk_ = std::move(disk);
  }

  // One that is not kept.  kInvalidArgument as Coordinator::Create.
  static absl::StatusOr<std::unique_ptr<LiveCoordinator>> Create(JobFacts facts);
  // No coordinator is here before Install.
  explicit LiveCoordinator(absl::Duration lease_timeout,
                           absl::Duration state_age_max = kStateAgeMax);
  ~LiveCoordinator();

  // The coordinator of the job is here from now on, in `word`'s term, going on from a state of `word`'s changes; its
  // state is kept before this returns. `store` is used until Vacate has returned; nullptr: the state is kept nowhere.
  // On an error of the store none is here.
  absl::Status Install(std::unique_ptr<Coordinator> coordinator, const v1::CoordinatorWord& word,
                       StateStore* store);
  // It is here no longer: servers and workers are to look for it elsewhere. The store is used no more when this
  // returns. It may be told so itself, by an error of the store: `on_vacated` is then called, without the mutex, and
  // Vacate, unless it is called there, returns after it has.
  void Vacate(absl::string_view why);
  void SetOnVacated(std::function<void(absl::Status)> on_vacated) {
    absl::MutexLock lock(&mutex_);
    on_vacated_ = std::move(on_vacated);
  }
  bool is_here() const {
    absl::MutexLock lock(&mutex_);
    return kept_ != nullptr;
  }
  // What every answer to a worker begins with: what only servers are told is left out.
  v1::CoordinatorWord WordForWorkers() const {
    absl::MutexLock lock(&mutex_);
    v1::CoordinatorWord word = WordNow();
    word.clear_server_key();
    return word;
  }

  // Runs `event(coordinator, now)` under the mutex, and what follows from it is sent once it is kept. Then done(result)
  // is called, once and without the mutex, by this thread or the one that writes the state.
  // The result must be made from a status, which tells where it was not run, or did not come to pass:
  //   kUnavailable         the coordinator is not here (any more)
  //   kFailedPrecondition  `run`, where it is not 0, is another run of the job
  template <typename Event, typename Done>
  void Ask(uint64_t run, Event event, Done done) {
    Ticket ticket;
    auto result = Post(run, std::move(event), &ticket);
    WhenKept(ticket, [result = std::move(result), done = std::move(done)](
                         const absl::Status& kept) { done(kept.ok() ? result : kept); });
  }
  // Like Ask, but returns the result: it may wait for the store, which gRPC's threads must not.
  template <typename Event>
  auto Run(uint64_t run, Event event) -> std::invoke_result_t<Event, Coordinator&, absl::Time> {
    using Result = std::invoke_result_t<Event, Coordinator&, absl::Time>;
    std::optional<Result> result;
    absl::Notification told;
    Ask(run, std::move(event), [&](Result told_result) {
      result.emplace(std::move(told_result));
      told.Notify();
    });
    told.WaitForNotification();
    return *std::move(result);
  }
  template <typename Event>
  auto Run(Event event) {
    return Run(0, std::move(event));
  }
  // Like Run, but returns at once, with the result: for events whose result nobody goes by.
  template <typename Event>
  auto Post(Event event) {
    Ticket ticket;
    return Post(0, std::move(event), &ticket);
  }

  // --- a server's connection: `connection` names it ---
  // `done` as Ask's. On error nothing is registered.
  void Attach(const v1::ServerHello& hello, const void* connection, PlanSink sink, StatusDone done);
  // Dropped if the server has connected anew, or another one of its rank has.
  void OnShardMessage(const v1::ServerHello& hello, const void* connection,
                      const v1::ShardMessage& message);
  // Its sink is not called afterwards. No effect on a server that has connected anew.
  void Detach(const v1::ServerHello& hello, const void* connection);

  // --- a host's connection, as a server's ---
  void AttachHost(const v1::HostHello& hello, const void* connection, HostSink sink,
                  StatusDone done);
  void OnHostMessage(const v1::HostHello& hello, const void* connection,
                     const v1::HostMessage& message);
  void DetachHost(const v1::HostHello& hello, const void* connection);

  // --- a worker's evaluation: `call` names it ---
  // `done` is called once, from any thread and without the mutex, unless Forget comes first.
  void Evaluate(const v1::EvaluateRequest& request, const void* call, EvaluateDone done);
  // The caller has gone. True if `done` will not be called any more.
  bool Forget(MemberId member, const void* call);

  // Returns the job's status, which is empty where the coordinator is not here.
  v1::JobStatus Status();
  // What has happened behind that event (EventLog::After); nullopt: the coordinator is not here.
  std::optional<v1::EventsReply> EventsAfter(uint64_t after) const;
  // Blocks until the job has ended or `deadline` of SteadyNow; false: it runs on, or elsewhere. One thread.
  bool AwaitEnd(absl::Time deadline);
  // OK: the job finished. Call when it has ended.
  absl::Status outcome();

 private:
  // They are called without the mutex.
  using Answers = CoordinatorAnswers;
  struct Ticket {
    uint64_t tenure = 0;  // 0: nothing came to pass
    uint64_t changes = 0;
  };
  struct Unkept {
    uint64_t changes = 0;
    StatusDone then;
  };

  template <typename Event>
  auto Post(uint64_t run, Event event, Ticket* ticket)
      -> std::invoke_result_t<Event, Coordinator&, absl::Time> {
    Answers answers;
    auto result = [&]() -> std::invoke_result_t<Event, Coordinator&, absl::Time> {
      absl::MutexLock lock(&mutex_);
      TESSERA_RETURN_IF_ERROR(Check(run));
      auto value = event(kept_->coordinator(), SteadyNow());
      *ticket = {tenure_, kept_->Collect()};
      answers = Release();
      return value;
    }();
    Deliver(std::move(answers));
    return result;
  }

  absl::Status Check(uint64_t run) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::CoordinatorWord WordNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return kept_ != nullptr ? kept_->Word() : word_;
  }
  // Sends what may be told, in order.
  Answers Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(KeptCoordinator::Batch batch, Answers* answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // kUnavailable: it cannot be kept any more.
  void WhenKept(const Ticket& ticket, StatusDone then);
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellVacated(const absl::Status& why);
  static void Deliver(Answers answers);
  void Tick();
  void Keep();
  void WatchStore();

  const absl::Duration lease_timeout_;
  const absl::Duration state_age_max_;
  const absl::Duration tick_;
  mutable absl::Mutex mutex_;
  std::unique_ptr<KeptCoordinator> kept_ ABSL_GUARDED_BY(mutex_);  // nullptr: it is not here
  StateStore* store_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t tenure_ ABSL_GUARDED_BY(mutex_) = 0;  // counts Install
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id teller_ ABSL_GUARDED_BY(mutex_);  // calls on_vacated, or is about to
  absl::Time write_began_ ABSL_GUARDED_BY(mutex_);
  bool is_old_ ABSL_GUARDED_BY(mutex_) = false;  // what was written last
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  v1::CoordinatorWord word_ ABSL_GUARDED_BY(mutex_);  // that it began with
  std::function<void(absl::Status)> on_vacated_ ABSL_GUARDED_BY(mutex_);
  // The answers to those that were waiting when the coordinator went.
  Answers gone_ ABSL_GUARDED_BY(mutex_);
  CoordinatorClients clients_ ABSL_GUARDED_BY(mutex_);
  std::vector<Unkept> unkept_ ABSL_GUARDED_BY(mutex_);        // of this tenure
  absl::string_view status_without_ ABSL_GUARDED_BY(mutex_);  // what the last one left out
  std::function<void(DiskTask)> disk_ ABSL_GUARDED_BY(mutex_);
  Wakeup stop_;
  Wakeup end_;  // whenever the job may have ended
  std::thread ticker_;
  std::thread keeper_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_LIVE_COORDINATOR_H_
