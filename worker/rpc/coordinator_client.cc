#include "worker/rpc/coordinator_client.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/base/wakeup.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/control_protocol.h"
#include "common/rpc/status.h"

namespace tessera {
namespace {

constexpr absl::Duration kJoinInterval = absl::Milliseconds(50);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
constexpr absl::Duration kRenewInterval = absl::Seconds(1);
constexpr absl::Duration kLeavePatience = absl::Seconds(3);
// How soon a blocked call notices Cancel, which may only set a flag.
constexpr absl::Duration kCancelPoll = absl::Milliseconds(20);

bool MayRepeat(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
}

}  // namespace

CoordinatorClient::CoordinatorClient(Options options)
    : options_(std::move(options)),
      stub_(v1::Coordinator::NewStub(OpenControlChannel(options_.address))) {}

CoordinatorClient::~CoordinatorClient() { StopRenewing(); }

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
  (stub_->async()->*method)(&context, &request, reply, [&](grpc::Status status) {
    result = std::move(status);
    answered.Notify();
  });
  while (!answered.WaitFor(kCancelPoll)) {
    if (cancellable && cancelled_.load(std::memory_order_relaxed)) {
      context.TryCancel();
      answered.WaitUntil(absl::InfiniteFuture());
      return absl::CancelledError("cancelled");
    }
  }
  if (result.ok()) return absl::OkStatus();
  return absl::Status(FromGrpc(result).code(), absl::StrCat("coordinator at ", options_.address,
                                                            ": ", result.error_message()));
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
    if (!give_up) give_up = SteadyNow() + lease_;
    if (SteadyNow() > *give_up) {
      return absl::UnavailableError(absl::StrCat(
          status.message(), "; not reached for the lease of ", absl::FormatDuration(lease_)));
    }
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
  std::random_device device;
  v1::JoinRequest request;
  request.set_job_digest(options_.job_digest);
  request.set_layout_hash(options_.layout_hash);
  request.set_protocol(kControlProtocol);
  request.set_description(options_.description);
  request.set_rows(options_.rows);
  request.set_life((uint64_t{device()} << 32) | device() | 1);
  if (options_.rank) request.set_rank(options_.rank->value());
  const absl::Time give_up = SteadyNow() + options_.join_timeout;
  absl::Time last_answer = SteadyNow();
  std::string told;
  while (true) {
    v1::JoinReply reply;
    std::string waiting;
    absl::Status status = Once(&Stub::Join, request, &reply, lease_, true);
    // Before its first answer the coordinator may not have been started yet; later it has gone.
    const bool has_gone = request.member() != 0 && SteadyNow() - last_answer > lease_;
    if (status.ok()) {
      last_answer = SteadyNow();
      request.set_member(reply.member());
      lease_ = absl::Nanoseconds(reply.lease_timeout_ns());
      if (reply.layout_hash() != options_.layout_hash) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "coordinator at %s: layout hash is %016x, want %016x; all must run the same build",
            options_.address, reply.layout_hash(), options_.layout_hash));
      }
      if (reply.admitted()) {
        member_ = MemberId(reply.member());
        rank_ = Rank(reply.rank());
        return reply;
      }
      waiting = absl::StrJoin(reply.waiting_for(), ", ");
    } else if (MayRepeat(status) && has_gone) {
      return absl::UnavailableError(absl::StrCat(
          status.message(), "; not reached for the lease of ", absl::FormatDuration(lease_)));
    } else if (MayRepeat(status)) {
      waiting = absl::StrCat("coordinator at ", options_.address);
    } else {
      return status;
    }
    if (!waiting.empty() && waiting != told && on_waiting) on_waiting(waiting);
    told = waiting;
    if (SteadyNow() > give_up) {
      return absl::DeadlineExceededError(absl::StrCat("join: still waiting for ", waiting,
                                                      " after ",
                                                      absl::FormatDuration(options_.join_timeout)));
    }
    TESSERA_RETURN_IF_ERROR(Pause(std::min(kJoinInterval, lease_ / 4)));
  }
}

void CoordinatorClient::StartRenewing(std::function<void(absl::Status)> on_lost,
                                      std::function<void(const v1::ServerList&)> on_servers) {
  TESSERA_CHECK(member_ != MemberId() && !renewer_.joinable());
  on_lost_ = std::move(on_lost);
  on_servers_ = std::move(on_servers);
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
  uint64_t told = 0, servers_known = 0;
  bool answered = true;
  while (true) {
    v1::RenewRequest request;
    // A drain is acknowledged at once: all members wait for it.
    const bool is_urgent = answered && drain_exchange_.load() != told;
    // Notified without a stop: a renewal is wanted soon, but for a short pause.
    if (stop_.WaitFor(is_urgent ? absl::ZeroDuration() : interval) && !StopsRenewing()) {
      stop_.WaitFor(kRetryPause);
    }
    if (StopsRenewing()) return;
    {
      absl::MutexLock lock(&mutex_);
      *request.mutable_progress() = progress_;
    }
    request.set_member(member_.value());
    request.set_drain_seen(drain_exchange_.load());
    request.set_servers_known(servers_known);
    v1::RenewReply reply;
    absl::Status status = Once(&Stub::Renew, request, &reply, lease_ / 2, false);
    if (status.ok() && reply.rejoin()) {
      if (on_lost_) on_lost_(absl::AbortedError("the job went back to a checkpoint"));
      return;
    }
    answered = status.ok();
    if (answered) {
      told = request.drain_seen();
      last_answer = SteadyNow();
      drain_exchange_.store(reply.drain_exchange());
      step_budget_.store(reply.step_budget());
      if (reply.has_server_list()) {
        servers_known = reply.server_list().generation();
        if (on_servers_) on_servers_(reply.server_list());
      }
      absl::MutexLock lock(&mutex_);
      waiting_for_.assign(reply.waiting_for().begin(), reply.waiting_for().end());
      continue;
    }
    {
      absl::MutexLock lock(&mutex_);
      if (stop_renewing_) return;
    }
    if (MayRepeat(status) && SteadyNow() - last_answer <= lease_) continue;
    if (MayRepeat(status)) {
      status = absl::UnavailableError(absl::StrCat(
          status.message(), "; not reached for the lease of ", absl::FormatDuration(lease_)));
    }
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
  v1::SavedReply reply;
  TESSERA_RETURN_IF_ERROR(Call(&Stub::Saved, request, &reply, lease_));
  return reply;
}

absl::StatusOr<v1::RenewReply> CoordinatorClient::AskMembership() {
  v1::RenewRequest request;
  {
    absl::MutexLock lock(&mutex_);
    *request.mutable_progress() = progress_;
  }
  request.set_member(member_.value());
  request.set_drain_seen(drain_exchange_.load());
  v1::RenewReply reply;
  TESSERA_RETURN_IF_ERROR(Once(&Stub::Renew, request, &reply, lease_ / 2, false));
  return reply;
}

absl::Status CoordinatorClient::BeginTraining() {
  v1::BeginTrainingRequest request;
  request.set_member(member_.value());
  v1::BeginTrainingReply reply;
  return Call(&Stub::BeginTraining, request, &reply, lease_);
}

absl::StatusOr<v1::EpochCut> CoordinatorClient::BeginEpoch(uint64_t epoch, Step step) {
  v1::BeginEpochRequest request;
  request.set_member(member_.value());
  request.set_epoch(epoch);
  request.set_step(step.value());
  v1::EpochCut cut;
  TESSERA_RETURN_IF_ERROR(Call(&Stub::BeginEpoch, request, &cut, lease_));
  return cut;
}

absl::StatusOr<v1::EvaluateReply> CoordinatorClient::Evaluate(v1::EvaluateRequest request) {
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

absl::Status CoordinatorClient::Leave(const v1::WorkerReport& report, absl::string_view error) {
  StopRenewing();
  v1::LeaveRequest request;
  request.set_member(member_.value());
  *request.mutable_report() = report;
  request.set_error(std::string(error));
  const absl::Time give_up = SteadyNow() + kLeavePatience;
  while (true) {
    v1::LeaveReply reply;
    absl::Status status = Once(&Stub::Leave, request, &reply, give_up - SteadyNow(), false);
    if (!MayRepeat(status) || SteadyNow() + kRetryPause > give_up) return status;
    absl::SleepFor(kRetryPause);
  }
}

}  // namespace tessera
