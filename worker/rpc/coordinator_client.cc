#include "worker/rpc/coordinator_client.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/long_wait.h"
#include "common/base/steady_clock.h"
#include "common/consistency/plan.h"
#include "common/rpc/control_protocol.h"
#include "common/rpc/status.h"

namespace tessera {
namespace {

// Before it is known.
constexpr absl::Duration kLeaseUnknown = absl::Seconds(10);
constexpr absl::Duration kJoinInterval = absl::Milliseconds(50);
// Until it is said why a coordinator is not reached that nobody may have started yet; and again.
constexpr absl::Duration kSilentAtStart = absl::Seconds(2);
constexpr absl::Duration kTellWhyInterval = absl::Seconds(30);
// The pause after a renewal, where another one is wanted soon: a worker with much news does not renew without end.
constexpr absl::Duration kRenewPause = absl::Milliseconds(50);
constexpr absl::Duration kRenewInterval = absl::Seconds(1);
constexpr absl::Duration kLeavePatience = absl::Seconds(3);
// How long a worker that has nothing to report tries to say that it leaves.
constexpr absl::Duration kFarewellPatience = absl::Seconds(1);

// What numbers of an admission may be: others go by them to where there is nothing.
absl::Status CheckAdmission(const v1::JoinReply& reply) {
  // Each of these numbers is an index or part of a random key, with room for so many bits.
  const auto wrong = [](absl::string_view what, uint64_t is, absl::string_view want) {
    return absl::InvalidArgumentError(
        absl::StrCat("join: ", what, " is ", is, ", want ", want, "; all must run the same build"));
  };
  if (reply.member() == 0) return wrong("member", reply.member(), "one that is not 0");
  if (reply.rank() >= kRankEnd) {
    return wrong("rank", reply.rank(), absl::StrCat("less than ", kRankEnd));
  }
  if (reply.first_exchange() == 0 || reply.first_exchange() >= kExchangeEnd) {
    return wrong("first exchange", reply.first_exchange(), "at least 1 and less than 2^40");
  }
  if (reply.first_step() >= kExchangeEnd) {
    return wrong("first step", reply.first_step(), "less than 2^40");
  }
  if (reply.epoch() >> 32 != 0) return wrong("epoch", reply.epoch(), "less than 2^32");
  return absl::OkStatus();
}

absl::Status Superseded() {
  return absl::UnavailableError("an earlier coordinator has answered than the last one");
}

}  // namespace

CoordinatorClient::CoordinatorClient(Options options)
    : options_(std::move(options)),
      calls_(options_.address, options_.find),
      contact_(kLeaseUnknown, SteadyNow()) {}

CoordinatorClient::~CoordinatorClient() { StopRenewing(); }

Retry CoordinatorClient::RetryFromNow() const {
  // The time to give up counts from the last answer, not from the first failure.
  Retry retry = NewRetry();
  retry.CountFrom(SteadyNow());
  return retry;
}

bool CoordinatorClient::Heed(const v1::CoordinatorWord& word) {
  absl::MutexLock lock(&mutex_);
  return contact_.Hear(&word, SteadyNow());
}

absl::Duration CoordinatorClient::lease() const {
  absl::MutexLock lock(&mutex_);
  return contact_.lease();
}

void CoordinatorClient::SetLease(absl::Duration lease) {
  absl::MutexLock lock(&mutex_);
  contact_.SetLease(lease);
}

absl::Duration CoordinatorClient::patience() const {
  absl::MutexLock lock(&mutex_);
  return contact_.patience();
}

v1::CoordinatorWord CoordinatorClient::word() const {
  absl::MutexLock lock(&mutex_);
  return contact_.word();
}

void CoordinatorClient::SetAway(bool away, absl::Duration silence) {
  if (is_away_ == away) return;
  is_away_ = away;
  LogCoordinatorAway("worker", "standing still", away, silence, patience());
  if (on_away_) on_away_(away);
}

bool CoordinatorClient::MayReturn(const absl::Status& status) const {
  // The coordinator says how long it may be away. 0: workers do not wait for it.
  return NewRetry().policy().may_help(status.code()) && word().away_timeout_ns() > 0;
}

absl::StatusOr<v1::JoinReply> CoordinatorClient::Join(
    std::function<void(absl::string_view)> on_waiting) {
  absl::StatusOr<v1::JoinReply> joined = BecomeMember(std::move(on_waiting));
  // Cancelled just when it had become a member: the others would wait for it.
  if (!calls_.is_cancelled() || member_ == MemberId()) return joined;
  Withdraw("");
  return absl::CancelledError("cancelled");
}

void CoordinatorClient::Withdraw(absl::string_view error) {
  StopRenewing();
  v1::LeaveRequest request;
  request.set_member(member_.value());
  // The word's run tells the coordinator of another run that this member is none of its own.
  request.set_run(word().run());
  request.set_error(std::string(error));
  v1::LeaveReply reply;
  calls_.Once(&Stub::Leave, request, &reply, {kFarewellPatience, /*may_be_cancelled=*/false})
      .IgnoreError();
}

absl::StatusOr<v1::JoinReply> CoordinatorClient::BecomeMember(
    std::function<void(absl::string_view)> on_waiting) {
  std::random_device device;
  v1::JoinRequest request;
  request.set_job_digest(options_.job_digest);
  request.set_job_text(options_.job_text);
  request.set_layout_hash(options_.layout_hash);
  request.set_protocol(kControlProtocol);
  request.set_description(options_.description);
  request.set_address(options_.own_address);
  request.set_rows(options_.rows);
  request.set_train_sum(options_.train_sum);
  request.set_test_sum(options_.test_sum);
  request.set_values(options_.values);
  request.set_continues(options_.continues.value());
  // A number of this process: a request that is repeated makes no second member. Never 0.
  request.set_life((uint64_t{device()} << 32) | device() | 1);
  if (options_.rank) request.set_rank(options_.rank->value());
  const absl::Time give_up = SteadyNow() + options_.join_timeout;
  std::string told;
  LongWait silent(SteadyNow(), kSilentAtStart, kTellWhyInterval);
  // Before its first answer the coordinator may not have been started yet; later it has gone.
  Retry retry(CoordinatorRetry(absl::InfiniteDuration()), MemberId());
  while (true) {
    v1::JoinReply reply;
    std::string waiting, why;
    bool is_found = true;
    if (calls_.is_cancelled()) return absl::CancelledError("cancelled");
    // Without the answer a member that was made cannot be withdrawn, and holds its rank for a lease.
    absl::Status status =
        calls_.Once(&Stub::Join, request, &reply,
                    {lease(), /*may_be_cancelled=*/true, std::min(lease(), kFarewellPatience)});
    // What an earlier coordinator says is not heeded: the job has moved on under a later one.
    if (status.ok() && !Heed(reply.word())) status = Superseded();
    if (status.ok()) {
      request.set_run(reply.word().run());
      request.set_member(reply.member());
      request.clear_job_text();  // It has the same.
      const absl::Duration lease = absl::Nanoseconds(reply.lease_timeout_ns());
      if (lease <= absl::ZeroDuration()) {
        return absl::InvalidArgumentError(
            absl::StrCat("join: lease is ", absl::FormatDuration(lease),
                         ", want more than 0s; all must run the same build"));
      }
      SetLease(lease);
      // Parameters would lie otherwise than servers have them.
      if (reply.layout_hash() != options_.layout_hash) {
        return absl::InvalidArgumentError(
            absl::StrFormat("join: layout hash is %016x, want %016x; all must run the same build",
                            reply.layout_hash(), options_.layout_hash));
      }
      member_ = MemberId(reply.member());
      retry = RetryFromNow();
      // Until the job may begin, or a place is free, requests are repeated.
      if (reply.admitted()) {
        TESSERA_RETURN_IF_ERROR(CheckAdmission(reply));
        rank_ = Rank(reply.rank());
        return reply;
      }
      waiting = absl::StrJoin(reply.waiting_for(), ", ");
    } else {
      // A failure that another attempt would meet again ends this.
      TESSERA_RETURN_IF_ERROR(CoordinatorCalls::Judge(status, &retry));
      const std::string address = calls_.address();
      waiting = address.empty() ? "a coordinator to be elected"
                                : absl::StrCat("coordinator at ", address);
      why = std::string(absl::StripPrefix(status.message(), absl::StrCat(waiting, ": ")));
      is_found = !address.empty();
    }
    if (!waiting.empty() && waiting != told && on_waiting) on_waiting(waiting);
    told = waiting;
    // It may only have been started later. A wrong name or port, or TLS on one side, is nothing to wait for.
    if (!why.empty() && silent.IsDue(SteadyNow()) && on_waiting) {
      on_waiting(absl::StrCat(waiting, is_found ? ", which is not reached: " : ": ", why));
    }
    if (SteadyNow() > give_up) {
      return absl::DeadlineExceededError(absl::StrCat("join: still waiting for ", waiting,
                                                      " after ",
                                                      absl::FormatDuration(options_.join_timeout)));
    }
    // Several requests for each lease, so that a member that waits is not taken for gone.
    TESSERA_RETURN_IF_ERROR(calls_.PauseUntil(SteadyNow() + std::min(kJoinInterval, lease() / 4)));
  }
}

void CoordinatorClient::StartRenewing(std::function<void(absl::Status)> on_lost,
                                      std::function<void(const v1::ServerList&)> on_servers,
                                      std::function<void(bool)> on_away,
                                      std::function<void(const v1::WorkerList&)> on_workers) {
  TESSERA_CHECK(member_ != MemberId() && !renewer_.joinable());
  on_lost_ = std::move(on_lost);
  on_servers_ = std::move(on_servers);
  on_away_ = std::move(on_away);
  on_workers_ = std::move(on_workers);
  renewer_ = std::thread([this] { Renew(); });
}

void CoordinatorClient::StopRenewing() {
  if (!renewer_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stop_renewing_ = true;
  }
  stop_.Notify();
  renewer_.join();
}

void CoordinatorClient::Renew() {
  const absl::Duration lease = this->lease();
  // Four renewals for each lease: three may be lost.
  const absl::Duration interval = std::min(kRenewInterval, lease / 4);
  absl::Time last_answer = SteadyNow();
  Retry retry = RetryFromNow();
  uint64_t told = 0, servers_known = 0, workers_known = 0;
  bool answered = true;
  while (true) {
    // A drain is acknowledged at once: all members wait for it.
    const bool is_urgent = answered && drain_exchange_.load() != told;
    // Notified without a stop: a renewal is wanted soon, but for a short pause.
    if (stop_.WaitFor(is_urgent ? absl::ZeroDuration() : interval) && !StopsRenewing()) {
      stop_.WaitFor(kRenewPause);
    }
    if (StopsRenewing()) return;
    v1::RenewRequest request = OwnRenewal();
    request.set_servers_known(servers_known);
    request.set_workers_known(workers_known);
    v1::RenewReply reply;
    // The lease's end is noticed when it comes: no call goes on beyond it.
    const absl::Duration left = last_answer + lease - SteadyNow();
    const absl::Duration patience_of_call =
        left > absl::ZeroDuration() ? std::clamp(left, kRenewPause, lease / 2) : lease / 2;
    // Not cancelled: renewing ends by its own flag, as a worker leaves in order.
    absl::Status status =
        calls_.Once(&Stub::Renew, request, &reply, {patience_of_call, /*may_be_cancelled=*/false});
    if (status.ok() && !Heed(reply.word())) status = Superseded();
    if (status.ok() && reply.rejoin()) {
      if (on_lost_) on_lost_(absl::AbortedError("the job went back to a checkpoint"));
      return;
    }
    answered = status.ok();
    if (answered) {
      told = request.drain_seen();
      SetAway(false, SteadyNow() - last_answer);
      last_answer = SteadyNow();
      retry = RetryFromNow();
      drain_exchange_.store(reply.drain_exchange());
      step_budget_.store(reply.step_budget());
      if (reply.has_server_list()) {
        // Only lists that are newer than the known one come with an answer.
        servers_known = reply.server_list().generation();
        if (on_servers_) on_servers_(reply.server_list());
      }
      if (reply.has_worker_list()) {
        workers_known = reply.worker_list().generation();
        if (on_workers_) on_workers_(reply.worker_list());
      }
      absl::MutexLock lock(&mutex_);
      waiting_for_.assign(reply.waiting_for().begin(), reply.waiting_for().end());
      continue;
    }
    {
      // A failure while this worker leaves is none.
      absl::MutexLock lock(&mutex_);
      if (stop_renewing_) return;
    }
    status = CoordinatorCalls::Judge(status, &retry);
    if (!status.ok()) {
      if (on_lost_) on_lost_(status);
      return;
    }
    // Within the lease a failed renewal is no news.
    const absl::Duration silence = SteadyNow() - last_answer;
    if (silence > lease) SetAway(true, silence);
  }
}

void CoordinatorClient::RenewSoon() { stop_.Notify(); }

bool CoordinatorClient::StopsRenewing() {
  absl::MutexLock lock(&mutex_);
  return stop_renewing_;
}

void CoordinatorClient::SetProgress(const v1::Progress& progress) {
  absl::MutexLock lock(&mutex_);
  progress_ = progress;
}

std::vector<std::string> CoordinatorClient::WaitingFor() const {
  absl::MutexLock lock(&mutex_);
  return waiting_for_;
}

absl::StatusOr<v1::SavedReply> CoordinatorClient::Saved(v1::SavedRequest request) {
  request.set_member(member_.value());
  request.set_run(word().run());
  v1::SavedReply reply;
  TESSERA_RETURN_IF_ERROR(calls_.Call(&Stub::Saved, request, &reply, lease(), NewRetry()));
  return reply;
}

// Called by the thread that renews, and by others.
v1::RenewRequest CoordinatorClient::OwnRenewal() const {
  v1::RenewRequest request;
  {
    absl::MutexLock lock(&mutex_);
    *request.mutable_progress() = progress_;
  }
  request.set_member(member_.value());
  request.set_drain_seen(drain_exchange_.load());
  request.set_run(word().run());
  return request;
}

absl::StatusOr<v1::RenewReply> CoordinatorClient::AskMembership() {
  v1::RenewReply reply;
  TESSERA_RETURN_IF_ERROR(
      calls_.Once(&Stub::Renew, OwnRenewal(), &reply, {lease() / 2, /*may_be_cancelled=*/false}));
  return reply;
}

absl::Status CoordinatorClient::BeginTraining() {
  // The coordinator starts the job's clock with the first of these.
  v1::BeginTrainingRequest request;
  request.set_run(word().run());
  request.set_member(member_.value());
  v1::BeginTrainingReply reply;
  return calls_.Call(&Stub::BeginTraining, request, &reply, lease(), NewRetry());
}

absl::StatusOr<v1::EpochCut> CoordinatorClient::BeginEpoch(uint64_t epoch, Step step) {
  v1::BeginEpochRequest request;
  request.set_run(word().run());
  request.set_member(member_.value());
  request.set_epoch(epoch);
  request.set_step(step.value());
  v1::EpochCut cut;
  TESSERA_RETURN_IF_ERROR(calls_.Call(&Stub::BeginEpoch, request, &cut, lease(), NewRetry()));
  return cut;
}

absl::Status CoordinatorClient::EndWarmUp() {
  std::string told;
  while (true) {
    v1::RenewRequest request = OwnRenewal();
    request.set_ends_warm_up(true);
    v1::RenewReply reply;
    TESSERA_RETURN_IF_ERROR(calls_.Call(&Stub::Renew, request, &reply, lease(), NewRetry()));
    // An earlier coordinator's word that warm-up is over counts for nothing.
    const bool is_believed = Heed(reply.word());
    if (is_believed && reply.begin_first().empty()) return absl::OkStatus();
    const std::string waiting = absl::StrJoin(reply.begin_first(), ", ");
    if (is_believed && waiting != told) {
      Log(LogLevel::kInfo,
          absl::StrCat("worker: warm-up is over, waiting for ", waiting, " to begin"));
      told = waiting;
    }
    TESSERA_RETURN_IF_ERROR(calls_.PauseUntil(SteadyNow() + kJoinInterval));
  }
}

absl::StatusOr<v1::EvaluateReply> CoordinatorClient::Evaluate(v1::EvaluateRequest request) {
  request.set_run(word().run());
  request.set_member(member_.value());
  if (request.stage() == v1::ARRIVE) {
    // Evaluations are numbered one by one. A repeated request, attempt above 0, asks for the one that it had begun.
    request.set_evaluation(request.attempt() > 0 ? evaluation_
                           : evaluation_ == 0    ? 0
                                                 : evaluation_ + 1);
  } else {
    request.set_evaluation(evaluation_);
  }
  v1::EvaluateReply reply;
  TESSERA_RETURN_IF_ERROR(
      calls_.Call(&Stub::Evaluate, request, &reply, absl::InfiniteDuration(), NewRetry()));
  evaluation_ = reply.evaluation();
  return reply;
}

absl::Status CoordinatorClient::Leave(const v1::WorkerReport& report, absl::string_view error,
                                      bool residual_lost, bool was_asked) {
  // A renewal behind the farewell would be refused, and be taken for a lost membership.
  StopRenewing();
  v1::LeaveRequest request;
  request.set_member(member_.value());
  *request.mutable_report() = report;
  request.set_error(std::string(error));
  request.set_residual_lost(residual_lost);
  request.set_was_asked(was_asked);
  request.set_run(word().run());
  // Work that is done is worth waiting with its report.
  const bool may_return = error.empty() && word().away_timeout_ns() > 0;
  const absl::Duration time = may_return ? patience() : kLeavePatience;
  const absl::Time give_up = SteadyNow() + time;
  Retry retry(CoordinatorRetry(time), member_);
  retry.CountFrom(SteadyNow());
  while (true) {
    v1::LeaveReply reply;
    const absl::Duration answer_time =
        std::clamp(give_up - SteadyNow(), kRenewPause, kLeavePatience);
    const absl::Status status =
        calls_.Once(&Stub::Leave, request, &reply, {answer_time, /*may_be_cancelled=*/false});
    if (status.ok()) return status;
    if (retry.OnFailure(status.code(), SteadyNow()) != Retry::Verdict::kAgain) return status;
    absl::SleepFor(retry.due() - SteadyNow());
  }
}

}  // namespace tessera
