#include "server/rpc/live_coordinator.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<LiveCoordinator>> LiveCoordinator::Create(JobFacts facts) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator,
                           Coordinator::Create(std::move(facts), SteadyNow()));
  auto live = std::make_unique<LiveCoordinator>(coordinator->facts().lease_timeout);
  TESSERA_RETURN_IF_ERROR(live->Install(std::move(coordinator), {}, nullptr));
  return live;
}

LiveCoordinator::LiveCoordinator(absl::Duration lease_timeout)
    : lease_timeout_(lease_timeout),
      tick_(std::clamp(lease_timeout / 8, absl::Milliseconds(10), absl::Milliseconds(250))) {
  ticker_ = std::thread([this] { Tick(); });
}

LiveCoordinator::~LiveCoordinator() {
  stop_.Notify();
  ticker_.join();
}

absl::Status LiveCoordinator::Install(std::unique_ptr<Coordinator> coordinator,
                                      const v1::CoordinatorWord& word, StateStore* store) {
  absl::MutexLock lock(&mutex_);
  TESSERA_CHECK(coordinator_ == nullptr);
  coordinator_ = std::move(coordinator);
  word_ = word;
  store_ = store;
  // The term is kept before anybody hears of it.
  kept_ = coordinator_->changes() - 1;
  TESSERA_RETURN_IF_ERROR(Keep());
  Answers none = Dispatch();
  TESSERA_CHECK(none.empty());  // Nobody has asked yet.
  return absl::OkStatus();
}

void LiveCoordinator::Vacate(absl::string_view why) {
  Answers gone;
  {
    absl::MutexLock lock(&mutex_);
    if (coordinator_ == nullptr) return;
    Log(LogLevel::kWarning, absl::StrCat("control: the coordinator is here no longer term=",
                                         word_.term(), " why=\"", why, "\""));
    Clear();
    gone = std::exchange(gone_, {});
  }
  Deliver(std::move(gone));
}

// What the state machine wanted sent goes with it.
void LiveCoordinator::Clear() {
  coordinator_.reset();
  store_ = nullptr;
  end_.Notify();
  for (auto& [server, sink] : sinks_) sink.send(nullptr);
  sinks_.clear();
  for (auto& [rank, host] : hosts_) host.send(nullptr);
  hosts_.clear();
  for (auto& [member, waiter] : waiters_) {
    gone_.push_back({std::move(waiter.done), absl::UnavailableError("the coordinator is gone")});
  }
  waiters_.clear();
}

absl::Status LiveCoordinator::Check(uint64_t run) const {
  if (coordinator_ == nullptr) {
    return absl::UnavailableError("the coordinator is not here");
  }
  if (store_ != nullptr && !store_->IsHeld(SteadyNow())) {
    return absl::UnavailableError("the coordinator is not sure whether another one has taken over");
  }
  if (run == 0 || run == word_.run()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the caller is of another run of this job, which was begun anew; start it again");
}

absl::Status LiveCoordinator::CheckTerm(uint64_t heard) const {
  if (heard <= word_.term()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("a coordinator of term ", heard,
                                             " has spoken, and this one is of term ",
                                             word_.term()));
}

absl::Status LiveCoordinator::Keep() {
  if (store_ == nullptr || coordinator_->changes() == kept_) return absl::OkStatus();
  v1::CoordinatorState state = coordinator_->Save();
  state.set_run(word_.run());
  state.set_term(word_.term());
  state.set_saved_at(absl::ToUnixNanos(SteadyNow()));
  const absl::Status written = store_->Write(state);
  if (written.ok()) {
    kept_ = coordinator_->changes();
    return absl::OkStatus();
  }
  Clear();
  return absl::UnavailableError(
      absl::StrCat("the coordinator cannot keep its state: ", written.message()));
}

void LiveCoordinator::TellVacated(const absl::Status& why) {
  Answers gone;
  std::function<void(absl::Status)> tell;
  {
    absl::MutexLock lock(&mutex_);
    gone = std::exchange(gone_, {});
    tell = on_vacated_;
  }
  Log(LogLevel::kWarning,
      absl::StrCat("control: the coordinator is here no longer why=\"", why.message(), "\""));
  Deliver(std::move(gone));
  if (tell) tell(why);
}

void LiveCoordinator::Tick() {
  absl::Time last = SteadyNow();
  while (!stop_.WaitFor(tick_)) {
    (void)Run([&](Coordinator& coordinator, absl::Time now) {
      // This process did not run: others may have spoken, and nobody was listening.
      if (now - last > lease_timeout_ / 2) {
        Log(LogLevel::kWarning,
            absl::StrCat("control: did not run for ms=", absl::ToInt64Milliseconds(now - last),
                         ", leases begin anew"));
        coordinator.ExtendLeases(now);
      }
      coordinator.Tick(now);
      return absl::OkStatus();
    });
    last = SteadyNow();
  }
}

LiveCoordinator::Answers LiveCoordinator::Dispatch() {
  Answers answers;
  if (coordinator_ == nullptr) return answers;
  for (Outgoing& outgoing : coordinator_->TakeOutbox()) {
    auto sink = sinks_.find(outgoing.server);
    if (sink != sinks_.end()) sink->second.send(&outgoing.message);
  }
  for (HostOutgoing& outgoing : coordinator_->TakeHostOutbox()) {
    auto host = hosts_.find(outgoing.host);
    if (host == hosts_.end()) continue;
    *outgoing.order.mutable_word() = word_;
    host->second.send(&outgoing.order);
  }
  for (DiskTask& task : coordinator_->TakeDiskTasks()) {
    if (disk_) disk_(std::move(task));
  }
  for (Coordinator::EvaluateAnswer& answer : coordinator_->TakeReplies()) {
    auto waiter = waiters_.find(answer.member);
    // Nobody waits: the connection broke, and the worker will ask again.
    if (waiter == waiters_.end()) continue;
    answers.push_back({std::move(waiter->second.done), std::move(answer.reply)});
    waiters_.erase(waiter);
  }
  return answers;
}

void LiveCoordinator::Deliver(Answers answers) {
  for (auto& [done, reply] : answers) done(std::move(reply));
}

absl::Status LiveCoordinator::Attach(const v1::ServerHello& hello, const void* connection,
                                     PlanSink sink) {
  const ShardId server(hello.rank());
  return Run(hello.run(), [&](Coordinator& coordinator, absl::Time now)
                              ABSL_NO_THREAD_SAFETY_ANALYSIS {
    TESSERA_RETURN_IF_ERROR(CheckTerm(hello.term()));
    absl::Status attached = coordinator.Attach(hello, now);
    if (!attached.ok()) return attached;
    v1::PlanMessage first;
    *first.mutable_word() = word_;
    sink(&first);
    sinks_[server] = {connection, std::move(sink)};
    return attached;
  });
}

void LiveCoordinator::OnShardMessage(const v1::ServerHello& hello, const void* connection,
                                     const v1::ShardMessage& message) {
  const ShardId server(hello.rank());
  (void)Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto sink = sinks_.find(server);
    if (sink == sinks_.end() || sink->second.connection != connection) return absl::OkStatus();
    coordinator.OnShardMessage(server, message, now);
    if (message.has_counters()) {
      // So that the server knows that the coordinator lives.
      v1::PlanMessage alive;
      *alive.mutable_word() = word_;
      sink->second.send(&alive);
    }
    return absl::OkStatus();
  });
}

void LiveCoordinator::Detach(const v1::ServerHello& hello, const void* connection) {
  const ShardId server(hello.rank());
  (void)Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto sink = sinks_.find(server);
    if (sink == sinks_.end() || sink->second.connection != connection) return absl::OkStatus();
    sinks_.erase(sink);
    coordinator.Detach(server, hello.life(), now);
    return absl::OkStatus();
  });
}

absl::Status LiveCoordinator::AttachHost(const v1::HostHello& hello, const void* connection,
                                         HostSink sink) {
  return Run(hello.run(), [&](Coordinator& coordinator, absl::Time now)
                              ABSL_NO_THREAD_SAFETY_ANALYSIS {
    TESSERA_RETURN_IF_ERROR(CheckTerm(hello.term()));
    absl::Status attached = coordinator.AttachHost(hello, now);
    if (attached.ok()) hosts_[hello.rank()] = {connection, std::move(sink)};
    return attached;
  });
}

void LiveCoordinator::OnHostMessage(const v1::HostHello& hello, const void* connection,
                                    const v1::HostMessage& message) {
  (void)Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto host = hosts_.find(hello.rank());
    if (host != hosts_.end() && host->second.connection == connection) {
      coordinator.OnHostMessage(hello.rank(), message, now);
    }
    return absl::OkStatus();
  });
}

void LiveCoordinator::DetachHost(const v1::HostHello& hello, const void* connection) {
  (void)Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto host = hosts_.find(hello.rank());
    if (host == hosts_.end() || host->second.connection != connection) return absl::OkStatus();
    hosts_.erase(host);
    coordinator.DetachHost(hello.rank(), hello.life(), now);
    return absl::OkStatus();
  });
}

void LiveCoordinator::Evaluate(const v1::EvaluateRequest& request, const void* call,
                               EvaluateDone done) {
  const MemberId member(request.member());
  Answers refused;
  bool is_waiting = false;
  const absl::Status asked = Run(request.run(), [&](Coordinator& coordinator, absl::Time now)
                                                    ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto old = waiters_.find(member);
    if (old != waiters_.end()) {
      refused.push_back({std::move(old->second.done),
                         absl::AbortedError("evaluate: a later call of this member replaced it")});
    }
    waiters_[member] = {call, std::move(done)};
    is_waiting = true;
    absl::Status status = coordinator.Evaluate(request, now);
    if (!status.ok()) {
      refused.push_back({std::move(waiters_[member].done), status});
      waiters_.erase(member);
    }
    return absl::OkStatus();
  });
  // Where the coordinator went in mid-call `done` was told.
  if (!asked.ok() && !is_waiting) refused.push_back({std::move(done), asked});
  Deliver(std::move(refused));
}

bool LiveCoordinator::Forget(MemberId member, const void* call) {
  absl::MutexLock lock(&mutex_);
  auto waiter = waiters_.find(member);
  if (waiter == waiters_.end() || waiter->second.call != call) return false;
  waiters_.erase(waiter);
  return true;
}

v1::JobStatus LiveCoordinator::Status() {
  absl::MutexLock lock(&mutex_);
  if (coordinator_ == nullptr) return {};
  v1::JobStatus status = coordinator_->Status(SteadyNow());
  status.mutable_coordinator()->set_term(word_.term());
  if (store_ != nullptr) status.mutable_coordinator()->set_store(store_->Describe());
  return status;
}

bool LiveCoordinator::AwaitEnd(absl::Time deadline) {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (coordinator_ == nullptr) return false;
      if (coordinator_->ended()) return true;
    }
    if (!end_.WaitUntil(deadline)) return false;
  }
}

absl::Status LiveCoordinator::outcome() {
  absl::MutexLock lock(&mutex_);
  if (coordinator_ == nullptr) return absl::UnavailableError("the coordinator is not here");
  return coordinator_->outcome();
}

}  // namespace tessera
