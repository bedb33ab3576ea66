#include "server/rpc/live_coordinator.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "server/control/status_limit.h"
#include "server/rpc/waiting_log.h"

namespace tessera {
namespace {

// Whoever waited for an answer is told this: what was asked may or may not hold with the next coordinator.
absl::Status NotKept() {
  return absl::UnavailableError("the coordinator could not keep its state");
}

}  // namespace

StateMoment StateMomentNow() { return {SteadyNow(), SteadyClockName(), absl::Now()}; }

absl::StatusOr<std::unique_ptr<LiveCoordinator>> LiveCoordinator::Create(JobFacts facts) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator,
                           Coordinator::Create(std::move(facts), SteadyNow()));
  auto live = std::make_unique<LiveCoordinator>(coordinator->facts().lease_timeout);
  TESSERA_RETURN_IF_ERROR(live->Install(std::move(coordinator), {}, nullptr));
  return live;
}

LiveCoordinator::LiveCoordinator(absl::Duration lease_timeout, absl::Duration state_age_max)
    : lease_timeout_(lease_timeout),
      state_age_max_(state_age_max),
      // Several ticks per lease, so that a lease that is over is noticed soon after.
      tick_(std::clamp(lease_timeout / 8, absl::Milliseconds(10), absl::Milliseconds(250))) {
  ticker_ = std::thread([this] { Tick(); });
  keeper_ = std::thread([this] { Keep(); });
}

LiveCoordinator::~LiveCoordinator() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stop_.Notify();
  ticker_.join();
  keeper_.join();
}

absl::Status LiveCoordinator::Install(std::unique_ptr<Coordinator> coordinator,
                                      const v1::CoordinatorWord& word, StateStore* store) {
  auto kept = std::make_unique<KeptCoordinator>(std::move(coordinator), word, store != nullptr);
  const absl::Time began = SteadyNow();
  // The term is kept before anybody hears of it.
  if (store != nullptr) {
    const v1::CoordinatorState state = kept->State(StateMomentNow());
    const absl::Status written = store->Write(state);
    if (!written.ok()) {
      return absl::UnavailableError(
          absl::StrCat("the coordinator cannot keep its state: ", written.message()));
    }
    kept->OnKept(state.changes(), /*in_time=*/true);
  }
  kept->Collect();
  absl::MutexLock lock(&mutex_);
  TESSERA_CHECK(kept_ == nullptr && !is_writing_);
  kept_ = std::move(kept);
  // The number of this coordinator's time here, so that answers of an earlier one are told apart.
  ++tenure_;
  word_ = word;
  store_ = store;
  write_began_ = began;
  is_old_ = false;
  Answers none = Release();
  TESSERA_CHECK(none.empty());  // Nobody has asked yet.
  return absl::OkStatus();
}

void LiveCoordinator::Vacate(absl::string_view why) {
  Answers gone;
  {
    absl::MutexLock lock(&mutex_);
    if (kept_ != nullptr) {
      Log(LogLevel::kWarning, absl::StrCat("control: the coordinator is here no longer term=",
                                           word_.term(), " why=\"", why, "\""));
      Clear();
    }
    gone = std::exchange(gone_, {});
  }
  Deliver(std::move(gone));
  absl::MutexLock lock(&mutex_);
  // Conditions are looked at by other threads, too.
  // Vacate returns only once nothing of the former coordinator is written or told any more, unless it is that thread.
  const auto is_idle = [this,
                        own = std::this_thread::get_id()]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !is_writing_ && (teller_ == std::thread::id() || teller_ == own);
  };
  mutex_.Await(absl::Condition(&is_idle));
}

// What the state machine wanted sent goes with it.
void LiveCoordinator::Clear() {
  kept_.reset();
  store_ = nullptr;
  end_.Notify();
  clients_.EndAll(&gone_);
  for (Unkept& unkept : std::exchange(unkept_, {})) {
    gone_.push_back([then = std::move(unkept.then)] { then(NotKept()); });
  }
}

absl::Status LiveCoordinator::Check(uint64_t run) const {
  if (kept_ == nullptr) {
    return absl::UnavailableError("the coordinator is not here");
  }
  // A leader that cannot be sure of its lease answers nothing: another one may have decided otherwise.
  if (store_ != nullptr && !store_->IsHeld(SteadyNow())) {
    return absl::UnavailableError("the coordinator is not sure whether another one has taken over");
  }
  // Run 0 is a caller who has not heard of any yet.
  if (run == 0 || run == word_.run()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the caller is of another run of this job, which was begun anew; start it again");
}

LiveCoordinator::Answers LiveCoordinator::Release() {
  Answers answers;
  if (kept_ == nullptr) return answers;
  KeptCoordinator::Told told = kept_->Release();
  // Servers hear the newest word even where nothing else is for them, and refuse an older coordinator from then on.
  if (told.ahead) {
    v1::PlanMessage heard;
    *heard.mutable_word() = *told.ahead;
    clients_.TellAllServers(heard);
  }
  for (KeptCoordinator::Batch& batch : told.batches) Send(std::move(batch), &answers);
  // Callers are answered in the order in which they asked.
  const auto kept = std::stable_partition(
      unkept_.begin(), unkept_.end(), [this](const Unkept& unkept) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return !kept_->MayBeTold(unkept.changes);
      });
  for (auto unkept = kept; unkept != unkept_.end(); ++unkept) {
    answers.push_back([then = std::move(unkept->then)] { then(absl::OkStatus()); });
  }
  unkept_.erase(kept, unkept_.end());
  if (kept_->coordinator().ended()) end_.Notify();
  return answers;
}

// Disk tasks leave with the messages, as a folder may be touched only by a coordinator whose state is kept.
void LiveCoordinator::Send(KeptCoordinator::Batch batch, Answers* answers) {
  clients_.Send(&batch, WordNow(), answers);
  for (DiskTask& task : batch.tasks) {
    if (disk_) disk_(std::move(task));
  }
}

void LiveCoordinator::WhenKept(const Ticket& ticket, StatusDone then) {
  absl::Status kept;
  // Without a ticket nothing was changed, and the answer is true at once.
  if (ticket.tenure != 0) {
    absl::MutexLock lock(&mutex_);
    if (kept_ == nullptr || tenure_ != ticket.tenure) {
      kept = NotKept();
    } else if (!kept_->MayBeTold(ticket.changes)) {
      unkept_.push_back({ticket.changes, std::move(then)});
      return;
    }
  }
  then(kept);
}

// The writer's thread. The store is slow (a disk, or a quorum of etcd), so that events go on while it writes: each
// write has all that has happened until it began, and whatever comes meanwhile is in the next one.
void LiveCoordinator::Keep() {
  while (true) {
    Answers answers;
    absl::Status written;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_more =
          [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return stopping_ || (kept_ != nullptr && (kept_->IsAhead() || is_old_));
          };
      mutex_.Await(absl::Condition(&has_more));
      if (stopping_) return;
      const v1::CoordinatorState state = kept_->State(StateMomentNow());
      StateStore* const store = store_;
      is_writing_ = true;
      is_old_ = false;
      write_began_ = SteadyNow();
      // The lock is given up while the store writes; kept_ and store_ may change meanwhile and are looked at again.
      mutex_.Unlock();
      written = store->Write(state);
      mutex_.Lock();
      is_writing_ = false;
      // Vacated in the meantime: the state that was written is nobody's any more.
      if (kept_ == nullptr) continue;
      if (written.ok()) {
        const bool was_late = kept_->is_late();
        // A write that took long does not count as in time, even if it succeeded.
        kept_->OnKept(state.changes(), SteadyNow() - write_began_ <= kKeepPatience);
        if (was_late && !kept_->is_late()) {
          Log(LogLevel::kInfo, "control: state is kept in time again");
        }
        answers = Release();
      } else {
        // Without a store it could promise things that its successor would not know of.
        Clear();
        teller_ = std::this_thread::get_id();
      }
    }
    Deliver(std::move(answers));
    if (!written.ok()) {
      TellVacated(absl::UnavailableError(
          absl::StrCat("the coordinator cannot keep its state: ", written.message())));
    }
  }
}

void LiveCoordinator::WatchStore() {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    if (kept_ == nullptr || store_ == nullptr) return;
    // Measured from the beginning of the last write.
    const absl::Duration taken = SteadyNow() - write_began_;
    if (!is_writing_) {
      // Renewals are no changes that are kept for; a state that is written now and then has them nearly.
      is_old_ = taken > state_age_max_;
      return;
    }
    // Nobody waits for one that is written for its age.
    if (!store_->MayLag() || !kept_->IsAhead() || kept_->is_late() || taken < kKeepPatience) return;
    kept_->SetLate();
    Log(LogLevel::kWarning, absl::StrCat("control: state is kept late, a write has taken ms=",
                                         absl::ToInt64Milliseconds(taken),
                                         "; the job goes on without waiting for the disk"));
    answers = Release();
  }
  Deliver(std::move(answers));
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
  absl::MutexLock lock(&mutex_);
  teller_ = std::thread::id();
}

void LiveCoordinator::Tick() {
  WaitingLog waiting;
  absl::Time last = SteadyNow();
  while (!stop_.WaitFor(tick_)) {
    (void)Post([&](Coordinator& coordinator, absl::Time now) {
      // This process did not run: others may have spoken, and nobody was listening.
      if (now - last > lease_timeout_ / 2) {
        // Workers and servers could not renew either while this process stood still.
        Log(LogLevel::kWarning,
            absl::StrCat("control: did not run for ms=", absl::ToInt64Milliseconds(now - last),
                         ", leases begin anew"));
        coordinator.ExtendLeases(now);
      }
      coordinator.Tick(now);
      waiting.See(coordinator, now);
      return absl::OkStatus();
    });
    WatchStore();
    last = SteadyNow();
  }
}

void LiveCoordinator::Deliver(Answers answers) {
  for (const auto& answer : answers) answer();
}

void LiveCoordinator::Attach(const v1::ServerHello& hello, const void* connection, PlanSink sink,
                             StatusDone done) {
  const ShardId server(hello.rank());
  // What was said to the connection before this one is void, and the new one hears the word first: a server that is
  // told of a later term takes nothing from an earlier one.
  const auto attach = [&](Coordinator& coordinator, absl::Time now)
                          ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    TESSERA_RETURN_IF_ERROR(kept_->CheckHello(hello, now));
    absl::Status attached = coordinator.Attach(hello, now);
    if (!attached.ok()) return attached;
    kept_->DropFor(server);
    v1::PlanMessage first;
    *first.mutable_word() = WordNow();
    sink(&first);
    clients_.Connect(server, connection, std::move(sink));
    return attached;
  };
  Ask(hello.run(), attach, std::move(done));
}

void LiveCoordinator::OnShardMessage(const v1::ServerHello& hello, const void* connection,
                                     const v1::ShardMessage& message) {
  const ShardId server(hello.rank());
  (void)Post([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    // A message of a connection that was replaced is dropped.
    if (!clients_.IsConnected(server, connection)) return absl::OkStatus();
    coordinator.OnShardMessage(server, message, now);
    if (message.has_counters()) {
      // The server learns from it that the coordinator lives.
      v1::PlanMessage alive;
      *alive.mutable_word() = WordNow();
      clients_.Tell(server, alive);
    }
    return absl::OkStatus();
  });
}

void LiveCoordinator::Detach(const v1::ServerHello& hello, const void* connection) {
  const ShardId server(hello.rank());
  const absl::Status told =
      Post([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        if (!clients_.IsConnected(server, connection)) return absl::OkStatus();
        clients_.Disconnect(server, connection);
        coordinator.Detach(server, hello.life(), now);
        return absl::OkStatus();
      });
  if (told.ok()) return;
  // The coordinator is not here, or not sure that it may hear of it.
  absl::MutexLock lock(&mutex_);
  clients_.Disconnect(server, connection);
}

void LiveCoordinator::AttachHost(const v1::HostHello& hello, const void* connection, HostSink sink,
                                 StatusDone done) {
  const auto attach = [&](Coordinator& coordinator, absl::Time now)
                          ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    TESSERA_RETURN_IF_ERROR(kept_->CheckHello(hello, now));
    absl::Status attached = coordinator.AttachHost(hello, now);
    if (!attached.ok()) return attached;
    // What was queued for the connection before is void.
    kept_->DropForHost(hello.rank());
    clients_.ConnectHost(hello.rank(), connection, std::move(sink));
    return attached;
  };
  Ask(hello.run(), attach, std::move(done));
}

void LiveCoordinator::OnHostMessage(const v1::HostHello& hello, const void* connection,
                                    const v1::HostMessage& message) {
  (void)Post([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (clients_.IsHostConnected(hello.rank(), connection)) {
      coordinator.OnHostMessage(hello.rank(), message, now);
    }
    return absl::OkStatus();
  });
}

void LiveCoordinator::DetachHost(const v1::HostHello& hello, const void* connection) {
  const absl::Status told =
      Post([&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        if (!clients_.IsHostConnected(hello.rank(), connection)) return absl::OkStatus();
        clients_.DisconnectHost(hello.rank(), connection);
        coordinator.DetachHost(hello.rank(), hello.life(), now);
        return absl::OkStatus();
      });
  if (told.ok()) return;
  absl::MutexLock lock(&mutex_);
  clients_.DisconnectHost(hello.rank(), connection);
}

void LiveCoordinator::Evaluate(const v1::EvaluateRequest& request, const void* call,
                               EvaluateDone done) {
  const MemberId member(request.member());
  Answers refused;
  bool is_waiting = false;
  Ticket ticket;
  const absl::Status asked = Post(
      request.run(),
      [&](Coordinator& coordinator, absl::Time now) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        // In front of the event, which may answer at once.
        clients_.AddWaiter(member, call, kept_->events(), std::move(done), &refused);
        is_waiting = true;
        const absl::Status status = coordinator.Evaluate(request, now);
        if (!status.ok()) clients_.RefuseWaiter(member, status, &refused);
        return absl::OkStatus();
      },
      &ticket);
  // Where the coordinator went in mid-call `done` was told.
  if (!asked.ok() && !is_waiting) refused.push_back([&] { done(asked); });
  Deliver(std::move(refused));
}

bool LiveCoordinator::Forget(MemberId member, const void* call) {
  absl::MutexLock lock(&mutex_);
  return clients_.ForgetWaiter(member, call);
}

std::optional<v1::EventsReply> LiveCoordinator::EventsAfter(uint64_t after) const {
  absl::MutexLock lock(&mutex_);
  if (kept_ == nullptr) return std::nullopt;
  return kept_->coordinator().events().After(after);
}

v1::JobStatus LiveCoordinator::Status() {
  absl::MutexLock lock(&mutex_);
  if (kept_ == nullptr) return {};
  v1::JobStatus status = kept_->coordinator().Status(SteadyNow());
  status.mutable_coordinator()->set_term(word_.term());
  if (store_ != nullptr) {
    status.mutable_coordinator()->set_store(
        absl::StrCat(store_->Describe(), kept_->is_late() ? " (late: its disk is slow)" : ""));
  }
  const absl::string_view without = LimitStatus(kStatusBytesMax, &status);
  if (without != status_without_ && !without.empty()) {
    Log(LogLevel::kWarning, absl::StrCat("control: status is too large, left out=\"", without,
                                         "\" bytes_max=", kStatusBytesMax));
  }
  status_without_ = without;
  return status;
}

bool LiveCoordinator::AwaitEnd(absl::Time deadline) {
  while (true) {
    {
      // The loop waits for a notice and looks again, as the end may be kept later than it came.
      absl::MutexLock lock(&mutex_);
      if (kept_ == nullptr) return false;
      // The end, too, is told only once it is kept: otherwise the next coordinator would go on with the job.
      if (kept_->coordinator().ended() && kept_->MayBeTold(kept_->changes())) return true;
    }
    if (!end_.WaitUntil(deadline)) return false;
  }
}

absl::Status LiveCoordinator::outcome() {
  absl::MutexLock lock(&mutex_);
  if (kept_ == nullptr) return absl::UnavailableError("the coordinator is not here");
  return kept_->coordinator().outcome();
}

}  // namespace tessera
