// A worker's side of the control plane, as plain calls for its train loop.
//
//   Join -> StartRenewing -> BeginTraining -> BeginEpoch ... Evaluate ... -> Leave
//
// A call that fails is repeated (worker/rpc/retry.h), for as long as the coordinator has said that it may be
// away (CoordinatorWord); every call may be repeated without harm. A worker that has heard nothing
// for a lease is told so, and stands still: the others may have gone on without it.
#ifndef TESSERA_WORKER_RPC_COORDINATOR_CLIENT_H_
#define TESSERA_WORKER_RPC_COORDINATOR_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/wakeup.h"
#include "common/rpc/coordinator_contact.h"
#include "proto/coordinator.pb.h"
#include "worker/rpc/coordinator_calls.h"
#include "worker/rpc/retry.h"

namespace tessera {

// The train loop's thread makes the calls; Cancel may come from anywhere, a signal handler
// included. Errors of all calls begin with the coordinator's address, and are beyond those named:
//   kCancelled           Cancel was called
//   kUnavailable         the coordinator was not reached for as long as it may be away
//   kFailedPrecondition  this worker is no longer a member, or the job has ended; the message says
//                        why
class CoordinatorClient {
 public:
  struct Options {
    // host:port.
    std::string address;
    // Where servers elect the coordinator: its address now, asked before the first call and when one has
    // failed; empty: it stays at `address`. May block for two seconds. Any thread.
    std::function<absl::StatusOr<std::string>()> find;
    std::string job_digest;
    // What that is of, for a coordinator that has another job (JoinRequest.job_text).
    std::string job_text;
    uint64_t layout_hash = 0;
    // nullopt: the lowest free one.
    std::optional<Rank> rank;
    // host:pid, for people.
    std::string description;
    // The number of rows of the worker's training data.
    uint64_t rows = 0;
    // Dataset::Sum of training and test rows.
    uint64_t train_sum = 0;
    uint64_t test_sum = 0;
    v1::ValueKind values = v1::VALUES_UNKNOWN;
    // The member that this process was before the job went back; MemberId(): none.
    MemberId continues;
    // Where other workers reach this one, host:port; empty: they need not.
    std::string own_address;
    // Gives up joining after this long.
    absl::Duration join_timeout = absl::InfiniteDuration();
  };

  explicit CoordinatorClient(Options options);
  // Ends the renewals. Does not leave.
  ~CoordinatorClient();

  // Blocks until this worker is admitted. `on_waiting` hears for whom the job waits ("server 1,
  // worker 0") whenever that changes, and now and then why the coordinator is not reached. Codes as
  // Coordinator.Join; kDeadlineExceeded after join_timeout. Ended by Cancel it leaves, so that its rank is free at
  // once.
  absl::StatusOr<v1::JoinReply> Join(std::function<void(absl::string_view)> on_waiting);

  // Keeps the lease from now on, on a thread of its own. `on_lost` is called there, once, when this
  // worker may not go on: end every wait, then the train loop. It must not call Leave itself.
  //   kAborted  the job went back to a checkpoint: join again, as another client
  // Where servers are replicas `on_servers` hears there of those that come and go. `on_away` hears there
  // that the coordinator was silent for a lease, and that it is back. Where workers speak to each other `on_workers`
  // hears there who they are.
  void StartRenewing(std::function<void(absl::Status)> on_lost,
                     std::function<void(const v1::ServerList&)> on_servers = nullptr,
                     std::function<void(bool is_away)> on_away = nullptr,
                     std::function<void(const v1::WorkerList&)> on_workers = nullptr);
  // The next renewal is due now, but for a short pause after the last one. Any thread.
  void RenewSoon();
  // What the next renewals are to say of this worker's progress.
  void SetProgress(const v1::Progress& progress);
  // The job is to end early: evaluate, as the last time, at the end of this exchange or at once if
  // it has passed; 0: no. Ask at every exchange boundary.
  Exchange drain_exchange() const { return Exchange(drain_exchange_.load()); }
  // Minibatches until the next exchange; 0: as the job says.
  int64_t step_budget() const { return step_budget_.load(); }
  // For whom the shards wait, as of the last renewal.
  std::vector<std::string> WaitingFor() const;

  // `status`, an error of AskMembership, says that the coordinator is away, and there is time to wait for it:
  // what is to become of this worker is heard from the renewals.
  bool MayReturn(const absl::Status& status) const;
  // Asks whether this worker still is a member, once and at once. A server may be the first to refuse
  // one that was removed, but only the coordinator knows why it was.
  absl::StatusOr<v1::RenewReply> AskMembership();

  absl::Status BeginTraining();
  // Epochs are begun one by one, the first being JoinReply.epoch; a worker that has all of an
  // epoch's steps behind it begins the next one.
  absl::StatusOr<v1::EpochCut> BeginEpoch(uint64_t epoch, Step step);
  // Blocks until nobody that could begin has yet to (RenewReply.begin_first).
  absl::Status EndWarmUp();
  // One stage; blocks until the others are there. Fills in the member and the evaluation's number.
  // The first ARRIVE of an evaluation has attempt 0. In the reply:
  //   restart   begin again with ARRIVE and reply.attempt
  //   finished  the others have ended it; the result is there, leave out the other stages
  absl::StatusOr<v1::EvaluateReply> Evaluate(v1::EvaluateRequest request);
  // A file of a checkpoint is written, or is to be (coordinator.proto). Any thread.
  absl::StatusOr<v1::SavedReply> Saved(v1::SavedRequest request);
  // An empty `error`: the work is done, or `was_asked` to leave before; that and `residual_lost` are LeaveRequest's.
  // Not cancelled by Cancel, but bounded to a few seconds. Ends the renewals.
  absl::Status Leave(const v1::WorkerReport& report, absl::string_view error,
                     bool residual_lost = false, bool was_asked = false);
  // Leaves with nothing to report. Unheard it is lost after its lease.
  void Withdraw(absl::string_view error);

  // Ends the call that blocks, and those to come but Leave. Async-signal-safe.
  void Cancel() { calls_.Cancel(); }

  MemberId member() const { return member_; }
  Rank rank() const { return rank_; }

 private:
  using Stub = CoordinatorCalls::Stub;

  // One whose time counts from the first failure.
  Retry NewRetry() const { return Retry(CoordinatorRetry(patience()), member_); }
  // One whose time counts from the last answer, which came now.
  Retry RetryFromNow() const;
  absl::StatusOr<v1::JoinReply> BecomeMember(std::function<void(absl::string_view)> on_waiting);
  // What this worker says of itself.
  v1::RenewRequest OwnRenewal() const;
  void Renew();
  void StopRenewing();
  bool StopsRenewing();
  // False: the answer is of an earlier term, and not to be believed.
  bool Heed(const v1::CoordinatorWord& word);
  void SetAway(bool away, absl::Duration silence);
  // What CoordinatorContact says, under the mutex.
  absl::Duration lease() const;
  void SetLease(absl::Duration lease);
  absl::Duration patience() const;
  v1::CoordinatorWord word() const;

  const Options options_;
  CoordinatorCalls calls_;
  std::atomic<uint64_t> drain_exchange_{0};
  std::atomic<int64_t> step_budget_{0};
  // Both are set by Join, before there is another thread; the member already while it waits.
  MemberId member_;
  Rank rank_;
  uint64_t evaluation_ = 0;  // the train loop's
  bool is_away_ = false;     // the renewing thread's

  mutable absl::Mutex mutex_;
  CoordinatorContact contact_ ABSL_GUARDED_BY(mutex_);
  v1::Progress progress_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> waiting_for_ ABSL_GUARDED_BY(mutex_);
  bool stop_renewing_ ABSL_GUARDED_BY(mutex_) = false;
  Wakeup stop_;  // notified with stop_renewing_, and where a renewal is wanted soon
  std::function<void(absl::Status)> on_lost_;
  std::function<void(const v1::ServerList&)> on_servers_;
  std::function<void(bool)> on_away_;
  std::function<void(const v1::WorkerList&)> on_workers_;
  std::thread renewer_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_COORDINATOR_CLIENT_H_
