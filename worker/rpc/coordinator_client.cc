#include "worker/rpc/coordinator_client.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/base/wakeup.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/control_protocol.h"
#include "common/rpc/status.h"

namespace tessera {
namespace {

constexpr absl::Duration kJoinInterval = absl::Milliseconds(50);
// Until it is said why a coordinator is not reached that nobody may have started yet; and again.
constexpr absl::Duration kSilentAtStart = absl::Seconds(2);
constexpr absl::Duration kTellWhyInterval = absl::Seconds(30);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
constexpr absl::Duration kRenewInterval = absl::Seconds(1);
constexpr absl::Duration kLeavePatience = absl::Seconds(3);
// Of one that has nothing to report.
constexpr absl::Duration kFarewellPatience = absl::Seconds(1);
// How soon a blocked call notices Cancel, which may only set a flag.
constexpr absl::Duration kCancelPoll = absl::Milliseconds(20);

bool MayRepeat(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
}

absl::Status NotReached(const absl::Status& status, absl::Duration patience) {
  return absl::UnavailableError(
      absl::StrCat(status.message(), "; not reached for ", absl::FormatDuration(patience)));
}

absl::Status Superseded() {
  return absl::UnavailableError("an earlier coordinator has answered than the last one");
}

}  // namespace

CoordinatorClient::CoordinatorClient(Options options)
    : options_(std::move(options)), address_(options_.address) {
  if (!address_.empty()) stub_ = v1::Coordinator::NewStub(OpenControlChannel(address_));
}

CoordinatorClient::~CoordinatorClient() { StopRenewing(); }

std::shared_ptr<v1::Coordinator::Stub> CoordinatorClient::CurrentStub(std::string* address) {
  absl::MutexLock lock(&mutex_);
  *address = address_;
  return stub_;
}

void CoordinatorClient::FindAgain() {
  if (!options_.find) return;
  const std::string address = options_.find();
  absl::MutexLock lock(&mutex_);
  if (address.empty() || address == address_) return;
  address_ = address;
  stub_ = v1::Coordinator::NewStub(OpenControlChannel(address_));
}

bool CoordinatorClient::HasMoved(const std::string& from) const {
  absl::MutexLock lock(&mutex_);
  return address_ != from;
}

bool CoordinatorClient::Heed(const v1::CoordinatorWord& word) {
  absl::MutexLock lock(&mutex_);
  if (word.term() < term_) return false;
  term_ = word.term();
  run_.store(word.run());
  away_timeout_ns_.store(word.away_timeout_ns());
  return true;
}

void CoordinatorClient::SetAway(bool away, absl::Duration silence) {
  if (is_away_ == away) return;
  is_away_ = away;
  const int64_t seconds = absl::ToInt64Seconds(silence);
  const absl::Duration wait = silence_max() - silence;
  // Where nobody waits for it the end is told next.
  const std::string what = wait > absl::ZeroDuration()
                               ? absl::StrCat("; standing still, waiting for another s=",
                                              absl::ToInt64Seconds(wait))
                               : "";
  Log(LogLevel::kWarning,
      away ? absl::StrCat("worker: coordinator is away last_heard_s=", seconds, what)
           : absl::StrCat("worker: coordinator is back after s=", seconds));
  if (on_away_) on_away_(away);
}

bool CoordinatorClient::MayReturn(const absl::Status& status) const {
  return MayRepeat(status) && away_timeout_ns_.load() > 0;
}

// The reply's callback may outlive neither `context` nor `reply`: this waits for it in any case.
template <typename Request, typename Reply>
absl::Status CoordinatorClient::Once(Method<Request, Reply> method, const Request& request,
                                     Reply* reply, absl::Duration patience, bool cancellable) {
  grpc::ClientContext context;
  if (patience != absl::InfiniteDuration()) {
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(patience));
  }
  Wakeup answered;
  grpc::Status result;
  std::string address;
  std::shared_ptr<v1::Coordinator::Stub> stub = CurrentStub(&address);
  if (stub == nullptr) {
    FindAgain();
    stub = CurrentStub(&address);
  }
  if (stub == nullptr) return absl::UnavailableError("no server has been elected coordinator");
  (stub->async()->*method)(&context, &request, reply, [&](grpc::Status status) {
    result = std::move(status);
    answered.Notify();
  });
  while (!answered.WaitFor(kCancelPoll)) {
    if (cancellable && cancelled_.load(std::memory_order_relaxed)) {
      context.TryCancel();
      answered.WaitUntil(absl::InfiniteFuture());
      return absl::CancelledError("cancelled");
    }
    // A renewal has found the coordinator elsewhere: where this call went nobody may answer it.
    if (options_.find && HasMoved(address)) {
      context.TryCancel();
      answered.WaitUntil(absl::InfiniteFuture());
      return absl::UnavailableError(absl::StrCat("coordinator at ", address, " is elsewhere now"));
    }
  }
  if (result.ok()) return absl::OkStatus();
  if (result.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::InvalidArgumentError(absl::StrCat("coordinator at ", address,
                                                   ": there is none, want the address of server 0"));
  }
  const absl::Status status(FromGrpc(result).code(), absl::StrCat("coordinator at ", address, ": ",
                                                                  result.error_message()));
  if (MayRepeat(status)) FindAgain();
  return status;
}

template <typename Request, typename Reply>
absl::Status CoordinatorClient::Call(Method<Request, Reply> method, const Request& request,
                                     Reply* reply, absl::Duration patience) {
  // Waiting for an answer is not silence: the time counts from the first failure to reach it.
  std::optional<absl::Time> give_up;
  while (true) {
    if (cancelled_.load(std::memory_order_relaxed)) return absl::CancelledError("cancelled");
    absl::Status status = Once(method, request, reply, patience, true);
    if (!MayRepeat(status)) return status;
    if (!give_up) give_up = SteadyNow() + silence_max();
    if (SteadyNow() > *give_up) return NotReached(status, silence_max());
    TESSERA_RETURN_IF_ERROR(Pause(kRetryPause));
  }
}

absl::Status CoordinatorClient::Pause(absl::Duration duration) {
  const absl::Time until = SteadyNow() + duration;
  while (SteadyNow() < until) {
    if (cancelled_.load(std::memory_order_relaxed)) return absl::CancelledError("cancelled");
    absl::SleepFor(std::min(kCancelPoll, until - SteadyNow()));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::JoinReply> CoordinatorClient::Join(
    std::function<void(absl::string_view)> on_waiting) {
  absl::StatusOr<v1::JoinReply> joined = BecomeMember(std::move(on_waiting));
  if (!cancelled_.load(std::memory_order_relaxed) || member_ == MemberId()) return joined;
  Withdraw("");
  return absl::CancelledError("cancelled");
}

void CoordinatorClient::Withdraw(absl::string_view error) {
  StopRenewing();
  v1::LeaveRequest request;
  request.set_member(member_.value());
  request.set_run(run_.load());
  request.set_error(std::string(error));
  v1::LeaveReply reply;
  Once(&Stub::Leave, request, &reply, kFarewellPatience, false).IgnoreError();
}

absl::StatusOr<v1::JoinReply> CoordinatorClient::BecomeMember(
    std::function<void(absl::string_view)> on_waiting) {
  std::random_device device;
  v1::JoinRequest request;
  request.set_job_digest(options_.job_digest);
  request.set_layout_hash(options_.layout_hash);
  request.set_protocol(kControlProtocol);
  request.set_description(options_.description);
  request.set_address(options_.own_address);
  request.set_rows(options_.rows);
  request.set_train_sum(options_.train_sum);
  request.set_test_sum(options_.test_sum);
  request.set_continues(options_.continues.value());
  request.set_life((uint64_t{device()} << 32) | device() | 1);
  if (options_.rank) request.set_rank(options_.rank->value());
  const absl::Time give_up = SteadyNow() + options_.join_timeout;
  absl::Time last_answer = SteadyNow();
  std::string told;
  absl::Time tell_why = SteadyNow() + kSilentAtStart;
  while (true) {
    v1::JoinReply reply;
    std::string waiting, why;
    absl::Status status = Once(&Stub::Join, request, &reply, lease_, true);
    // Before its first answer the coordinator may not have been started yet; later it has gone.
    const bool has_gone = request.member() != 0 && SteadyNow() - last_answer > silence_max();
    if (status.ok() && !Heed(reply.word())) status = Superseded();
    if (status.ok()) {
      request.set_run(reply.word().run());
      last_answer = SteadyNow();
      request.set_member(reply.member());
      lease_ = absl::Nanoseconds(reply.lease_timeout_ns());
      if (reply.layout_hash() != options_.layout_hash) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "join: layout hash is %016x, want %016x; all must run the same build",
            reply.layout_hash(), options_.layout_hash));
      }
      member_ = MemberId(reply.member());
      if (reply.admitted()) {
        rank_ = Rank(reply.rank());
        return reply;
      }
      waiting = absl::StrJoin(reply.waiting_for(), ", ");
    } else if (MayRepeat(status) && has_gone) {
      return NotReached(status, silence_max());
    } else if (MayRepeat(status)) {
      std::string address;
      CurrentStub(&address);
      waiting = address.empty() ? "a coordinator to be elected"
                                : absl::StrCat("coordinator at ", address);
      if (!address.empty()) {
        why = std::string(absl::StripPrefix(status.message(), absl::StrCat(waiting, ": ")));
      }
    } else {
      return status;
    }
    if (!waiting.empty() && waiting != told && on_waiting) on_waiting(waiting);
    told = waiting;
    // It may only have been started later. A wrong name or port, or TLS on one side, is nothing to wait for.
    if (!why.empty() && SteadyNow() > tell_why) {
      if (on_waiting) on_waiting(absl::StrCat(waiting, ", which is not reached: ", why));
      tell_why = SteadyNow() + kTellWhyInterval;
    }
    if (SteadyNow() > give_up) {
      return absl::DeadlineExceededError(absl::StrCat("join: still waiting for ", waiting,
                                                      " after ",
                                                      absl::FormatDuration(options_.join_timeout)));
    }
    TESSERA_RETURN_IF_ERROR(Pause(std::min(kJoinInterval, lease_ / 4)));
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
  const absl::Duration interval = std::min(kRenewInterval, lease_ / 4);
  absl::Time last_answer = SteadyNow();
  uint64_t told = 0, servers_known = 0, workers_known = 0;
  bool answered = true;
  while (true) {
    // A drain is acknowledged at once: all members wait for it.
    const bool is_urgent = answered && drain_exchange_.load() != told;
    // Notified without a stop: a renewal is wanted soon, but for a short pause.
    if (stop_.WaitFor(is_urgent ? absl::ZeroDuration() : interval) && !StopsRenewing()) {
      stop_.WaitFor(kRetryPause);
    }
    if (StopsRenewing()) return;
    v1::RenewRequest request = OwnRenewal();
    request.set_servers_known(servers_known);
    request.set_workers_known(workers_known);
    v1::RenewReply reply;
    // The lease's end is noticed when it comes.
    const absl::Duration left = last_answer + lease_ - SteadyNow();
    const absl::Duration patience_of_call =
        left > absl::ZeroDuration() ? std::clamp(left, kRetryPause, lease_ / 2) : lease_ / 2;
    absl::Status status = Once(&Stub::Renew, request, &reply, patience_of_call, false);
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
      drain_exchange_.store(reply.drain_exchange());
      step_budget_.store(reply.step_budget());
      if (reply.has_server_list()) {
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
      absl::MutexLock lock(&mutex_);
      if (stop_renewing_) return;
    }
    const absl::Duration silence = SteadyNow() - last_answer;
    if (MayRepeat(status) && silence <= silence_max()) {
      if (silence > lease_) SetAway(true, silence);
      continue;
    }
    if (MayRepeat(status)) status = NotReached(status, silence_max());
    if (on_lost_) on_lost_(status);
    return;
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
  request.set_run(run_.load());
  v1::SavedReply reply;
  TESSERA_RETURN_IF_ERROR(Call(&Stub::Saved, request, &reply, lease_));
  return reply;
}

v1::RenewRequest CoordinatorClient::OwnRenewal() const {
  v1::RenewRequest request;
  {
    absl::MutexLock lock(&mutex_);
    *request.mutable_progress() = progress_;
  }
  request.set_member(member_.value());
  request.set_drain_seen(drain_exchange_.load());
  request.set_run(run_.load());
  return request;
}

absl::StatusOr<v1::RenewReply> CoordinatorClient::AskMembership() {
  v1::RenewReply reply;
  TESSERA_RETURN_IF_ERROR(Once(&Stub::Renew, OwnRenewal(), &reply, lease_ / 2, false));
  return reply;
}

absl::Status CoordinatorClient::BeginTraining() {
  v1::BeginTrainingRequest request;
  request.set_run(run_.load());
  request.set_member(member_.value());
  v1::BeginTrainingReply reply;
  return Call(&Stub::BeginTraining, request, &reply, lease_);
}

absl::StatusOr<v1::EpochCut> CoordinatorClient::BeginEpoch(uint64_t epoch, Step step) {
  v1::BeginEpochRequest request;
  request.set_run(run_.load());
  request.set_member(member_.value());
  request.set_epoch(epoch);
  request.set_step(step.value());
  v1::EpochCut cut;
  TESSERA_RETURN_IF_ERROR(Call(&Stub::BeginEpoch, request, &cut, lease_));
  return cut;
}

absl::Status CoordinatorClient::EndWarmUp() {
  std::string told;
  while (true) {
    v1::RenewRequest request = OwnRenewal();
    request.set_ends_warm_up(true);
    v1::RenewReply reply;
    TESSERA_RETURN_IF_ERROR(Call(&Stub::Renew, request, &reply, lease_));
    const bool is_believed = Heed(reply.word());
    if (is_believed && reply.begin_first().empty()) return absl::OkStatus();
    const std::string waiting = absl::StrJoin(reply.begin_first(), ", ");
    if (is_believed && waiting != told) {
      Log(LogLevel::kInfo, absl::StrCat("worker: warm-up is over, waiting for ", waiting, " to begin"));
      told = waiting;
    }
    TESSERA_RETURN_IF_ERROR(Pause(kJoinInterval));
  }
}

absl::StatusOr<v1::EvaluateReply> CoordinatorClient::Evaluate(v1::EvaluateRequest request) {
  request.set_run(run_.load());
  request.set_member(member_.value());
  if (request.stage() == v1::ARRIVE) {
    request.set_evaluation(request.attempt() > 0 ? evaluation_
                           : evaluation_ == 0    ? 0
                                                 : evaluation_ + 1);
  } else {
    request.set_evaluation(evaluation_);
  }
  v1::EvaluateReply reply;
  TESSERA_RETURN_IF_ERROR(Call(&Stub::Evaluate, request, &reply, absl::InfiniteDuration()));
  evaluation_ = reply.evaluation();
  return reply;
}

absl::Status CoordinatorClient::Leave(const v1::WorkerReport& report, absl::string_view error,
                                      bool residual_lost) {
  StopRenewing();
  v1::LeaveRequest request;
  request.set_member(member_.value());
  *request.mutable_report() = report;
  request.set_error(std::string(error));
  request.set_residual_lost(residual_lost);
  request.set_run(run_.load());
  // Work that is done is worth waiting with its report.
  const bool may_return = error.empty() && away_timeout_ns_.load() > 0;
  const absl::Time give_up = SteadyNow() + (may_return ? silence_max() : kLeavePatience);
  while (true) {
    v1::LeaveReply reply;
    const absl::Duration patience = std::min(kLeavePatience, give_up - SteadyNow());
    absl::Status status = Once(&Stub::Leave, request, &reply, patience, false);
    if (!MayRepeat(status) || SteadyNow() + kRetryPause > give_up) return status;
    absl::SleepFor(kRetryPause);
  }
}

}  // namespace tessera
