// Calls to the coordinator, wherever it is: one attempt, or as many as it takes to hear an answer.
#ifndef TESSERA_WORKER_RPC_COORDINATOR_CALLS_H_
#define TESSERA_WORKER_RPC_COORDINATOR_CALLS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/coordinator.grpc.pb.h"
#include "worker/rpc/retry.h"

namespace tessera {

// Owns the connection. Any thread, and several at once. Errors begin with the coordinator's address.
class CoordinatorCalls {
 public:
  // `find` says where the coordinator is now, or why that is not known: asked before the first call where `address` is
  // empty, and when one has failed; empty: it stays at `address`. May block for two seconds.
  CoordinatorCalls(std::string address, std::function<absl::StatusOr<std::string>()> find);

  using Stub = v1::Coordinator::StubInterface::async_interface;
  template <typename Request, typename Reply>
  using Method = void (Stub::*)(grpc::ClientContext*, const Request*, Reply*,
                                std::function<void(grpc::Status)>);

  struct Limits {
    // How long an answer may take.
    absl::Duration patience = absl::InfiniteDuration();
    bool may_be_cancelled = true;
    // Once cancelled, how long the answer is waited for still: for a call whose work the caller has to undo.
    absl::Duration after_cancel = absl::ZeroDuration();
  };

  // One attempt.
  //   kCancelled        Cancel was called, and this call may be
  //   kUnavailable      not reached, none is known, or it has moved meanwhile
  //   kInvalidArgument  who answers there is no coordinator
  // Others are the coordinator's own.
  template <typename Request, typename Reply>
  absl::Status Once(Method<Request, Reply> method, const Request& request, Reply* reply,
                    Limits limits) {
    return Once([&](Stub* stub, grpc::ClientContext* context,
                    Done done) { (stub->*method)(context, &request, reply, std::move(done)); },
                limits);
  }

  // Attempts as `retry` decides, each of which may take `patience`. kUnavailable once the time is over.
  template <typename Request, typename Reply>
  absl::Status Call(Method<Request, Reply> method, const Request& request, Reply* reply,
                    absl::Duration patience, Retry retry) {
    while (true) {
      if (is_cancelled()) return Cancelled();
      const absl::Status status = Once(method, request, reply, {patience});
      if (status.ok()) return status;
      const absl::Status verdict = Judge(status, &retry);
      if (!verdict.ok()) return verdict;
      const absl::Status paused = PauseUntil(retry.due());
      if (!paused.ok()) return paused;
    }
  }

  // Judges an attempt that has ended with `failed`: OK where there is to be another one, else the call's error.
  static absl::Status Judge(const absl::Status& failed, Retry* retry);
  // Waits until `end`. kCancelled: Cancel was called.
  absl::Status PauseUntil(absl::Time end) const;

  // Where it was looked for last, host:port; "": it is not known.
  std::string address() const;

  // Ends the calls and pauses under way that may be, and those to come. Async-signal-safe.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  using Done = std::function<void(grpc::Status)>;
  using Begin = std::function<void(Stub*, grpc::ClientContext*, Done)>;

  static absl::Status Cancelled() { return absl::CancelledError("cancelled"); }
  absl::Status Once(const Begin& begin, Limits limits);
  std::shared_ptr<v1::Coordinator::Stub> CurrentStub(std::string* address) const;
  // Opens a channel to address_.
  void Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsStale() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // A call has failed: it may be elsewhere by now. An error: nobody says where.
  absl::Status FindAgain();

  const std::function<absl::StatusOr<std::string>()> find_;
  std::atomic<bool> cancelled_{false};
  mutable absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<v1::Coordinator::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);  // stub_'s
  absl::Time opened_ ABSL_GUARDED_BY(mutex_);                       // channel_
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_COORDINATOR_CALLS_H_
