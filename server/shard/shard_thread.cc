#include "server/shard/shard_thread.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/steady_clock.h"

namespace tessera {

ShardThread::ShardThread(std::unique_ptr<Shard> shard) : traits_(shard->traits()) {
  Place(std::move(shard));
  thread_ = std::thread([this] { Run(); });
}

ShardThread::ShardThread(ShardTraits traits)
    : refusal_(absl::UnavailableError("shard: it is being made, ask again")),
      traits_(std::move(traits)) {
  thread_ = std::thread([this] { Run(); });
}

ShardThread::~ShardThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wakeup_.Notify();
  thread_.join();
  // The thread has ended: whoever still waits is told so here.
  if (served_ != nullptr) served_->Refuse(absl::CancelledError("shard: the server is stopping"));
}

void ShardThread::Add(Event event) {
  {
    absl::MutexLock lock(&mutex_);
    // Events are added under the lock and run on the shard's thread alone.
    events_.push_back(std::move(event));
  }
  wakeup_.Notify();
}

// Events are taken all at once and run in order; then one piece of work is done, so that an event waits for one fold at
// most. The thread sleeps when there is neither, until the next event or deadline.
void ShardThread::Run() {
  std::vector<Event> events;
  bool idle = false, stopping = false;
  absl::Time deadline = absl::InfiniteFuture();
  while (true) {
    if (idle) wakeup_.WaitUntil(deadline);
    {
      absl::MutexLock lock(&mutex_);
      events.swap(events_);
      stopping = stopping_;
    }
    if (events.empty() && stopping) return;
    // While a replacement is awaited events wait in their order, but for those that must not.
    for (Event& event : events) {
      if (refusal_.ok() || event.when == Event::When::kAtOnce) {
        event.run();
      } else {
        waiting_.push_back(std::move(event));
      }
    }
    const bool had_events = !events.empty();
    events.clear();
    if (!refusal_.ok()) {
      // Nothing is due while there is no shard.
      idle = !stopping;
      deadline = absl::InfiniteFuture();
      continue;
    }
    // One piece of work at a time, so that pushes and reads that come meanwhile are answered soon.
    const bool worked = served_->Work(had_events, SteadyNow());
    idle = !worked && !stopping;
    deadline = served_->shard().Deadline().value_or(absl::InfiniteFuture());
  }
}

void ShardThread::Place(std::unique_ptr<Shard> shard) {
  // Another layout would be another model: the caller has made the shard from the job that was agreed on.
  TESSERA_CHECK(shard->layout_hash() == traits_.layout_hash);
  absl::MutexLock lock(&names_mutex_);
  names_ = shard->cores();
  if (served_ != nullptr) return served_->Replace(std::move(shard));
  served_ = std::make_unique<ServedShard>(std::move(shard));
}

void ShardThread::AwaitReplacement(uint64_t number, const absl::Status& why) {
  Add({[this, number, why] {
    // Numbers ascend; an older request that comes late must not undo a newer one.
    if (number <= awaited_) return;
    awaited_ = number;
    refusal_ = why;
    const auto is_void = [](const Event& event) {
      return event.when == Event::When::kAfterwardsOfPlan;
    };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_void), waiting_.end());
    if (served_ != nullptr) served_->Refuse(why);
  }});
}

void ShardThread::Replace(uint64_t number, absl::StatusOr<std::unique_ptr<Shard>> shard,
                          std::function<void(absl::Status)> done) {
  Add({[this, number, shard = std::move(shard), done = std::move(done)]() mutable {
    // A newer request has come meanwhile: its shard is still to be made.
    if (number != awaited_ || refusal_.ok()) return;
    const absl::Status status = shard.status();
    // The old shard stays where the new one could not be made: its parameters are those that the job last agreed on.
    if (shard.ok()) Place(*std::move(shard));
    if (served_ != nullptr) {
      refusal_ = absl::OkStatus();
      for (Event& event : std::exchange(waiting_, {})) event.run();
    }
    done(status);
  }});
}

bool ShardThread::WantsKeysOf(const CoreName& core) const {
  // Asked on gRPC's threads, so that the names are behind a lock of their own.
  absl::MutexLock lock(&names_mutex_);
  return names_ == nullptr || names_->WantsKeysOf(core);
}

void ShardThread::Post(absl::AnyInvocable<void(ServedShard&)> event) {
  Add({[this, event = std::move(event)]() mutable { event(*served_); }, Event::When::kAfterwards});
}

void ShardThread::PostOfPlan(absl::AnyInvocable<void(ServedShard&)> event) {
  Add({[this, event = std::move(event)]() mutable { event(*served_); },
       Event::When::kAfterwardsOfPlan});
}

// The call may come after the shard that gave the place has gone: then it is a place of nobody, and Release knows that.
void ShardThread::Release(MemberId member, int64_t bytes) {
  Add({[this, member, bytes] {
    if (served_ != nullptr) served_->shard().Release(member, bytes);
  }});
}

void ShardThread::CancelRead(uint64_t read) {
  Add({[this, read] {
    if (refusal_.ok()) served_->CancelRead(read);
  }});
}

void ShardThread::Inspect(bool with_hash, std::function<void(View)> done) {
  Add({[this, with_hash, done = std::move(done)] {
    View view;
    if (!refusal_.ok()) {
      if (served_ != nullptr) view.counters.CountOn(served_->shard().counters());
      return done(std::move(view));
    }
    const Shard& shard = served_->shard();
    view.counters = shard.counters();
    view.waits_for = shard.WaitsFor();
    view.parked_reads = served_->parked_reads();
    view.reserved_bytes = shard.stage().reserved_bytes();
    view.core_report = served_->core_report();
    if (with_hash) view.parameters_hash = shard.ParametersHash();
    done(std::move(view));
  }});
}

}  // namespace tessera
