#include "server/rpc/live_coordinator.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<LiveCoordinator>> LiveCoordinator::Create(JobFacts facts) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator,
                           Coordinator::Create(std::move(facts), SteadyNow()));
  return absl::WrapUnique(new LiveCoordinator(std::move(coordinator)));
}

LiveCoordinator::LiveCoordinator(std::unique_ptr<Coordinator> coordinator)
    : tick_(std::clamp(coordinator->facts().lease_timeout / 8, absl::Milliseconds(10),
                       absl::Milliseconds(250))),
      coordinator_(std::move(coordinator)) {
  ticker_ = std::thread([this] { Tick(); });
}

LiveCoordinator::~LiveCoordinator() {
  stop_.Notify();
  ticker_.join();
}

void LiveCoordinator::Tick() {
  while (!stop_.WaitFor(tick_)) {
    Run([](Coordinator& coordinator, absl::Time now) {
      coordinator.Tick(now);
      return 0;
    });
  }
}

LiveCoordinator::Answers LiveCoordinator::Dispatch() {
  for (Outgoing& outgoing : coordinator_->TakeOutbox()) {
    auto sink = sinks_.find(outgoing.server);
    if (sink != sinks_.end()) sink->second.send(outgoing.message);
  }
  for (const HostOutgoing& outgoing : coordinator_->TakeHostOutbox()) {
    auto host = hosts_.find(outgoing.host);
    if (host != hosts_.end()) host->second.send(outgoing.order);
  }
  for (DiskTask& task : coordinator_->TakeDiskTasks()) {
    if (disk_) disk_(std::move(task));
  }
  Answers answers;
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
  return Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    absl::Status attached = coordinator.Attach(hello, now);
    if (attached.ok()) sinks_[server] = {connection, std::move(sink)};
    return attached;
  });
}

void LiveCoordinator::OnShardMessage(const v1::ServerHello& hello, const void* connection,
                                     const v1::ShardMessage& message) {
  const ShardId server(hello.rank());
  Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto sink = sinks_.find(server);
    if (sink != sinks_.end() && sink->second.connection == connection) {
      coordinator.OnShardMessage(server, message, now);
    }
    return 0;
  });
}

void LiveCoordinator::Detach(const v1::ServerHello& hello, const void* connection) {
  const ShardId server(hello.rank());
  Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto sink = sinks_.find(server);
    if (sink == sinks_.end() || sink->second.connection != connection) return 0;
    sinks_.erase(sink);
    coordinator.Detach(server, hello.life(), now);
    return 0;
  });
}

absl::Status LiveCoordinator::AttachHost(const v1::HostHello& hello, const void* connection,
                                         HostSink sink) {
  return Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    absl::Status attached = coordinator.AttachHost(hello, now);
    if (attached.ok()) hosts_[hello.rank()] = {connection, std::move(sink)};
    return attached;
  });
}

void LiveCoordinator::OnHostMessage(const v1::HostHello& hello, const void* connection,
                                    const v1::HostMessage& message) {
  Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto host = hosts_.find(hello.rank());
    if (host != hosts_.end() && host->second.connection == connection) {
      coordinator.OnHostMessage(hello.rank(), message, now);
    }
    return 0;
  });
}

void LiveCoordinator::DetachHost(const v1::HostHello& hello, const void* connection) {
  Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto host = hosts_.find(hello.rank());
    if (host == hosts_.end() || host->second.connection != connection) return 0;
    hosts_.erase(host);
    coordinator.DetachHost(hello.rank(), hello.life(), now);
    return 0;
  });
}

void LiveCoordinator::Evaluate(const v1::EvaluateRequest& request, const void* call,
                               EvaluateDone done) {
  const MemberId member(request.member());
  Answers replaced;
  Run([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto old = waiters_.find(member);
    if (old != waiters_.end()) {
      replaced.push_back({std::move(old->second.done),
                          absl::AbortedError("evaluate: a later call of this member replaced it")});
    }
    waiters_[member] = {call, std::move(done)};
    absl::Status asked = coordinator.Evaluate(request, now);
    if (!asked.ok()) {
      replaced.push_back({std::move(waiters_[member].done), asked});
      waiters_.erase(member);
    }
    return 0;
  });
  Deliver(std::move(replaced));
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
  return coordinator_->Status(SteadyNow());
}

bool LiveCoordinator::AwaitEnd(absl::Time deadline) {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (coordinator_->ended()) return true;
    }
    if (!end_.WaitUntil(deadline)) return false;
  }
}

absl::Status LiveCoordinator::outcome() {
  absl::MutexLock lock(&mutex_);
  return coordinator_->outcome();
}

}  // namespace tessera
