#include "server/shard/shard_thread.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/steady_clock.h"

namespace tessera {

ShardThread::ShardThread(std::unique_ptr<Shard> shard) : traits_(TraitsOf(*shard)) {
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
  if (served_ != nullptr) served_->Refuse(absl::CancelledError("shard: the server is stopping"));
}

void ShardThread::Post(Event event) {
  {
    absl::MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
  }
  wakeup_.Notify();
}

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
    for (Event& event : events) {
      if (Refusal().ok() || event.when == Event::When::kAtOnce) {
        event.run();
      } else {
        waiting_.push_back(std::move(event));
      }
    }
    const bool had_events = !events.empty();
    events.clear();
    if (!Refusal().ok()) {
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
  TESSERA_CHECK(shard->layout_hash() == traits_.layout_hash);
  absl::MutexLock lock(&names_mutex_);
  names_ = shard->cores();
  if (served_ != nullptr) return served_->Replace(std::move(shard));
  served_ = std::make_unique<ServedShard>(std::move(shard));
}

void ShardThread::AwaitReplacement(uint64_t number, const absl::Status& why) {
  Post([this, number, why] {
    if (number <= awaited_) return;
    awaited_ = number;
    refusal_ = why;
    const auto is_void = [](const Event& event) {
      return event.when == Event::When::kAfterwardsOfPlan;
    };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_void), waiting_.end());
    if (served_ != nullptr) served_->Refuse(why);
  });
}

void ShardThread::Replace(uint64_t number, absl::StatusOr<std::unique_ptr<Shard>> shard,
                          std::function<void(absl::Status)> done) {
  auto moved = std::make_shared<absl::StatusOr<std::unique_ptr<Shard>>>(std::move(shard));
  Post([this, number, moved, done = std::move(done)] {
    if (number != awaited_ || Refusal().ok()) return;
    if (moved->ok()) Place(std::move(**moved));
    if (served_ != nullptr) {
      refusal_ = absl::OkStatus();
      for (const Event& event : std::exchange(waiting_, {})) event.run();
    }
    done(moved->status());
  });
}

bool ShardThread::WantsKeysOf(const CoreName& core) const {
  absl::MutexLock lock(&names_mutex_);
  return names_ == nullptr || names_->WantsKeysOf(core);
}

void ShardThread::Reserve(MemberId member, int64_t bytes,
                          std::function<void(absl::Status)> granted) {
  Post([this, member, bytes, granted = std::move(granted)]() mutable {
    if (!Refusal().ok()) return granted(Refusal());
    served_->Reserve(member, bytes, std::move(granted));
  });
}

void ShardThread::Release(MemberId member, int64_t bytes) {
  Post([this, member, bytes] {
    // Also while another is awaited: should it not come, this one goes on.
    if (served_ != nullptr) served_->shard().Release(member, bytes);
  });
}

void ShardThread::Accept(ReceivedPush push,
                         std::function<void(absl::StatusOr<PushAccepted>)> done) {
  // std::function wants copyable captures; the push is moved, not copied.
  auto moved = std::make_shared<ReceivedPush>(std::move(push));
  Post([this, moved, done = std::move(done)]() mutable {
    if (!Refusal().ok()) return done(Refusal());
    served_->Accept(std::move(*moved), std::move(done));
  });
}

template <typename Result>
uint64_t ShardThread::Park(MemberId member, Exchange after, RestWord word,
                           std::function<absl::StatusOr<std::optional<Result>>()> ask,
                           std::function<void(absl::StatusOr<Result>)> done) {
  uint64_t id = 0;
  {
    absl::MutexLock lock(&mutex_);
    id = next_read_++;
    events_.push_back(
        {[this, id, member, after, word, ask = std::move(ask), done = std::move(done)]() mutable {
          if (!Refusal().ok()) return done(Refusal());
          served_->Read<Result>(id, member, after, word, std::move(ask), std::move(done));
        }});
  }
  wakeup_.Notify();
  return id;
}

uint64_t ShardThread::Read(MemberId member, Exchange after, RestWord word,
                           std::function<void(absl::StatusOr<ReadResult>)> done) {
  return Park<ReadResult>(
      member, after, word, [this, member, after] { return served_->shard().Read(member, after); },
      std::move(done));
}

uint64_t ShardThread::ReadSubnet(MemberId member, Exchange round, RestWord word,
                                 std::function<void(absl::StatusOr<SubnetReadResult>)> done) {
  const Exchange after(round.value() - 1);
  return Park<SubnetReadResult>(
      member, after, word,
      [this, member, round] { return served_->shard().ReadSubnet(member, round); },
      std::move(done));
}

uint64_t ShardThread::ReadSparse(MemberId member, Exchange after, const CoreName& core,
                                 RestWord word,
                                 std::function<void(absl::StatusOr<SparseReadResult>)> done) {
  return Park<SparseReadResult>(
      member, after, word,
      [this, member, after, core] { return served_->shard().ReadSparse(member, after, core); },
      std::move(done));
}

uint64_t ShardThread::ReadCore(
    MemberId member, uint64_t number,
    std::function<void(absl::StatusOr<std::shared_ptr<const Core>>)> done) {
  return Park<std::shared_ptr<const Core>>(
      member, Exchange(0), RestWord(),
      [this, member, number] { return served_->shard().ReadCore(member, number); },
      std::move(done));
}

void ShardThread::SetCoreListener(std::function<void(const CoreReport&)> listener) {
  PostInTurn([this, listener = std::move(listener)]() mutable {
    served_->SetCoreListener(std::move(listener));
  });
}

void ShardThread::AskCore(const CoreQuestion& question) {
  PostOfPlan([this, question] { served_->AskCore(question); });
}

void ShardThread::CancelRead(uint64_t read) {
  Post([this, read] {
    if (Refusal().ok()) served_->CancelRead(read);
  });
}

void ShardThread::ReadOutside(MemberId member, Exchange after, RestWord word,
                              std::function<void(absl::StatusOr<ReadResult>)> done) {
  Post([this, member, after, word, done = std::move(done)]() mutable {
    if (!Refusal().ok()) return done(Refusal());
    served_->ReadOutside(member, after, word, SteadyNow(), std::move(done));
  });
}

void ShardThread::AwaitCopy() {
  PostInTurn([this] { served_->shard().AwaitCopy(); });
}

void ShardThread::WantsCopy(std::function<void(bool)> done) {
  Post([this, done = std::move(done)] { done(Refusal().ok() && served_->shard().WantsCopy()); });
}

void ShardThread::CopyReplica(std::function<void(absl::StatusOr<ReplicaCopy>)> done) {
  Post([this, done = std::move(done)] {
    if (!Refusal().ok()) return done(absl::UnavailableError(Refusal().message()));
    done(served_->shard().CopyReplica(SteadyNow()));
  });
}

void ShardThread::TakeCopy(ReplicaTable table, std::vector<float> values,
                           std::function<void(absl::Status)> done) {
  const auto copied = std::make_shared<const std::vector<float>>(std::move(values));
  Post([this, table = std::move(table), copied, done = std::move(done)] {
    if (!Refusal().ok()) return done(absl::UnavailableError(Refusal().message()));
    done(served_->shard().TakeCopy(table, *copied));
  });
}

void ShardThread::SetPlan(Plan plan, std::function<void(std::vector<Shard::Removed>)> done) {
  PostOfPlan(
      [this, plan = std::move(plan), done = std::move(done)] { done(served_->SetPlan(plan)); });
}

void ShardThread::Propose(uint64_t proposal, Exchange first, std::function<void(Exchange)> done) {
  PostOfPlan(
      [this, proposal, first, done = std::move(done)] { done(served_->Propose(proposal, first)); });
}

void ShardThread::Withdraw(uint64_t proposal) {
  PostOfPlan([this, proposal] { served_->Withdraw(proposal); });
}

void ShardThread::Order(const CopyOrder& order,
                        std::function<void(absl::StatusOr<ShardCopy>)> taken) {
  PostOfPlan([this, order, taken = std::move(taken)]() mutable {
    served_->Order(order, std::move(taken));
  });
}

void ShardThread::SetStandby(std::shared_ptr<LogSink> sink) {
  PostInTurn([this, sink = std::move(sink)]() mutable { served_->SetStandby(std::move(sink)); });
}

void ShardThread::Abdicate(const absl::Status& why) {
  PostInTurn([this, why] { served_->Abdicate(why); });
}

void ShardThread::OnAcknowledged(std::shared_ptr<LogSink> from, uint64_t position) {
  PostInTurn(
      [this, from = std::move(from), position] { served_->OnAcknowledged(from.get(), position); });
}

void ShardThread::Inspect(bool with_hash, std::function<void(View)> done) {
  Post([this, with_hash, done = std::move(done)] {
    View view;
    if (!Refusal().ok()) {
      if (served_ != nullptr) view.counters.CountOn(served_->shard().counters());
      return done(std::move(view));
    }
    const Shard& shard = served_->shard();
    view.counters = shard.counters();
    view.waits_for = shard.WaitsFor();
    view.parked_reads = served_->parked_reads();
    view.reserved_bytes = shard.reserved_bytes();
    view.core_report = served_->core_report();
    if (with_hash) view.parameters_hash = shard.ParametersHash();
    done(std::move(view));
  });
}

}  // namespace tessera
