#include "server/shard/shard_thread.h"
#include "common/base/steady_clock.h"

#include <algorithm>
#include <utility>


namespace tessera {

ShardThread::ShardThread(std::unique_ptr<Shard> shard)
    : shard_(std::move(shard)),
      gate_(shard_.get()),
      shape_(shard_->shape()),
      slices_(shard_->slices()),
      layout_hash_(shard_->layout_hash()),
      seed_(shard_->seed()),
      codecs_(shard_->codecs()),
      dense_forms_(shard_->dense_forms()),
      trains_subnets_(shard_->trains_subnets()),
      takes_whole_(shard_->takes_whole()),
      moves_cores_(shard_->cores() != nullptr),
      names_(shard_->cores()) {
  thread_ = std::thread([this] { Run(); });
}

ShardThread::~ShardThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wakeup_.Notify();
  thread_.join();
  Refuse(absl::CancelledError("shard: the server is stopping"));
}

void ShardThread::Refuse(const absl::Status& why) {
  for (ParkedRead& read : std::exchange(reads_, {})) read.fail(why);
  for (ParkedReserve& reserve : std::exchange(reservations_, {})) reserve.granted(why);
  gate_.Refuse(why);
}

void ShardThread::Post(std::function<void()> event) {
  {
    absl::MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
  }
  wakeup_.Notify();
}

void ShardThread::Run() {
  std::vector<std::function<void()>> events;
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
    for (std::function<void()>& event : events) event();
    const bool had_events = !events.empty();
    events.clear();
    // One piece of work at a time, so that pushes and reads that come meanwhile are answered soon.
    const absl::Time now = SteadyNow();
    const bool worked = shard_->Advance(now);
    if (worked || had_events) gate_.Settle(worked, now);
    // Before anybody reads: whoever is told of a checkpoint must find that it has been made.
    TakeCopy();
    if (worked || had_events) {
      AnswerReads();
      GrantReservations();
      TellCoreReport();
    }
    idle = !worked && !stopping;
    deadline = shard_->Deadline().value_or(absl::InfiniteFuture());
  }
}

void ShardThread::TakeCopy() {
  std::optional<ShardCopy> copy = shard_->TakeCopy();
  if (!copy.has_value()) return;
  gate_.Append(CopiedEvent{copy->order});
  copy_taken_(*std::move(copy));
}

void ShardThread::Rest(MemberId member, Exchange after, RestWord word) {
  shard_->Rest(member, after, word);
  if (word.number > 0) gate_.Append(RestEvent{member, after, word});
}

void ShardThread::AnswerReads() {
  for (size_t i = 0; i < reads_.size();) {
    if (reads_[i].answer()) {
      reads_.erase(reads_.begin() + i);
    } else {
      ++i;
    }
  }
}

void ShardThread::TellCoreReport() {
  const CoreExchange* const cores = shard_->cores();
  if (cores == nullptr || !core_listener_ || cores->report_number() == core_reports_told_) return;
  core_reports_told_ = cores->report_number();
  if (const std::optional<CoreReport> report = cores->report()) core_listener_(*report);
}

bool ShardThread::KnowsCore(const CoreName& core) const {
  absl::MutexLock lock(&names_mutex_);
  return names_->Knows(core);
}

void ShardThread::GrantReservations() {
  for (size_t i = 0; i < reservations_.size();) {
    const bool is_member = shard_->plan().Find(reservations_[i].member) != nullptr;
    if (is_member && !shard_->Reserve(reservations_[i].member, reservations_[i].bytes)) {
      ++i;
      continue;
    }
    const ParkedReserve reserve = std::move(reservations_[i]);
    reservations_.erase(reservations_.begin() + i);
    reserve.granted(
        is_member ? absl::OkStatus()
                  : absl::FailedPreconditionError("push: not a member of the current plan; its "
                                                  "lease has ended, or it never joined"));
  }
}

void ShardThread::Reserve(MemberId member, int64_t bytes,
                          std::function<void(absl::Status)> granted) {
  Post([this, member, bytes, granted = std::move(granted)]() mutable {
    reservations_.push_back({member, bytes, std::move(granted)});
  });
}

void ShardThread::Release(MemberId member, int64_t bytes) {
  Post([this, member, bytes] { shard_->Release(member, bytes); });
}

void ShardThread::Accept(ReceivedPush push,
                         std::function<void(absl::StatusOr<PushAccepted>)> done) {
  // std::function wants copyable captures; the push is moved, not copied.
  auto moved = std::make_shared<ReceivedPush>(std::move(push));
  Post([this, moved, done = std::move(done)] {
    const MemberId member = moved->member;
    const Exchange exchange = moved->exchange;
    std::optional<ReceivedPush> logged;
    if (gate_.records_pushes()) logged = moved->Share();
    absl::StatusOr<PushAccepted> accepted = shard_->Accept(std::move(*moved));
    if (!accepted.ok() || accepted->need_keys) return done(std::move(accepted));
    if (logged && !accepted->duplicate) gate_.Append(PushEvent{*std::move(logged)});
    gate_.SayAccepted(member, exchange, [done, accepted = *accepted](const absl::Status& status) {
      if (!status.ok()) return done(status);
      done(accepted);
    });
  });
}

template <typename Result>
uint64_t ShardThread::Park(MemberId member, Exchange after, RestWord word,
                           std::function<absl::StatusOr<std::optional<Result>>()> ask,
                           std::function<void(absl::StatusOr<Result>)> done) {
  ParkedRead read;
  read.fail = done;
  read.answer = [this, member, after, ask = std::move(ask), done = std::move(done)] {
    absl::StatusOr<std::optional<Result>> result = ask();
    if (!result.ok()) {
      done(result.status());
      return true;
    }
    if (!result->has_value()) return false;
    gate_.SayTo(member, after, [done, answer = **std::move(result)](const absl::Status& status) {
      if (!status.ok()) return done(status);
      done(answer);
    });
    return true;
  };
  uint64_t id = 0;
  {
    absl::MutexLock lock(&mutex_);
    id = read.id = next_read_++;
    events_.push_back([this, member, after, word, read = std::move(read)]() mutable {
      Rest(member, after, word);
      reads_.push_back(std::move(read));
    });
  }
  wakeup_.Notify();
  return id;
}

uint64_t ShardThread::Read(MemberId member, Exchange after, RestWord word,
                           std::function<void(absl::StatusOr<ReadResult>)> done) {
  return Park<ReadResult>(
      member, after, word, [this, member, after] { return shard_->Read(member, after); },
      std::move(done));
}

uint64_t ShardThread::ReadSubnet(MemberId member, Exchange round, RestWord word,
                                 std::function<void(absl::StatusOr<SubnetReadResult>)> done) {
  const Exchange after(round.value() - 1);
  return Park<SubnetReadResult>(
      member, after, word, [this, member, round] { return shard_->ReadSubnet(member, round); },
      std::move(done));
}

uint64_t ShardThread::ReadSparse(MemberId member, Exchange after, const CoreName& core,
                                 RestWord word,
                                 std::function<void(absl::StatusOr<SparseReadResult>)> done) {
  return Park<SparseReadResult>(
      member, after, word,
      [this, member, after, core] { return shard_->ReadSparse(member, after, core); },
      std::move(done));
}

uint64_t ShardThread::ReadCore(
    MemberId member, uint64_t number,
    std::function<void(absl::StatusOr<std::shared_ptr<const Core>>)> done) {
  return Park<std::shared_ptr<const Core>>(
      member, Exchange(0), RestWord(),
      [this, member, number] { return shard_->ReadCore(member, number); }, std::move(done));
}

void ShardThread::SetCoreListener(std::function<void(const CoreReport&)> listener) {
  Post([this, listener = std::move(listener)]() mutable {
    core_listener_ = std::move(listener);
    core_reports_told_ = 0;
  });
}

void ShardThread::AskCore(const CoreQuestion& question) {
  Post([this, question] {
    if (shard_->cores() == nullptr) return;
    shard_->cores()->Ask(question);
    gate_.Append(CoreQuestionEvent{question});
  });
}

void ShardThread::CancelRead(uint64_t read) {
  Post([this, read] {
    const auto found = std::find_if(reads_.begin(), reads_.end(),
                                    [read](const ParkedRead& r) { return r.id == read; });
    if (found == reads_.end()) return;
    const ParkedRead cancelled = std::move(*found);
    reads_.erase(found);
    cancelled.fail(absl::CancelledError("pull: the client has gone"));
  });
}

void ShardThread::ReadOutside(MemberId member, Exchange after, RestWord word,
                              std::function<void(absl::StatusOr<ReadResult>)> done) {
  Post([this, member, after, word, done = std::move(done)] {
    Rest(member, after, word);
    shard_->FoldAccepted(SteadyNow());
    gate_.Say([done, read = shard_->ReadNow()](const absl::Status& status) {
      if (!status.ok()) return done(status);
      done(read);
    });
  });
}

void ShardThread::AwaitCopy() {
  Post([this] { shard_->AwaitCopy(); });
}

void ShardThread::WantsCopy(std::function<void(bool)> done) {
  Post([this, done = std::move(done)] { done(shard_->WantsCopy()); });
}

void ShardThread::CopyReplica(std::function<void(absl::StatusOr<ReplicaCopy>)> done) {
  Post([this, done = std::move(done)] { done(shard_->CopyReplica(SteadyNow())); });
}

void ShardThread::TakeCopy(ReplicaTable table, std::vector<float> values,
                           std::function<void(absl::Status)> done) {
  const auto copied = std::make_shared<const std::vector<float>>(std::move(values));
  Post([this, table = std::move(table), copied, done = std::move(done)] {
    done(shard_->TakeCopy(table, *copied));
  });
}

void ShardThread::SetPlan(Plan plan, std::function<void(std::vector<Shard::Removed>)> done) {
  Post([this, plan = std::move(plan), done = std::move(done)] {
    std::vector<Shard::Removed> removed = shard_->SetPlan(plan);
    gate_.Append(PlanEvent{plan});
    gate_.OnMembers();
    done(std::move(removed));
  });
}

void ShardThread::Propose(uint64_t proposal, Exchange first, std::function<void(Exchange)> done) {
  Post([this, proposal, first, done = std::move(done)] {
    const Exchange promised = shard_->Propose(proposal, first);
    gate_.Append(ProposeEvent{proposal, promised});
    done(promised);
  });
}

void ShardThread::Withdraw(uint64_t proposal) {
  Post([this, proposal] {
    shard_->Withdraw(proposal);
    gate_.Append(WithdrawEvent{proposal});
  });
}

void ShardThread::Order(const CopyOrder& order, std::function<void(ShardCopy)> taken) {
  Post([this, order, taken = std::move(taken)]() mutable {
    copy_taken_ = std::move(taken);
    shard_->Order(order);
    // It may be due already, and what is to be folded next is none of it.
    TakeCopy();
  });
}

void ShardThread::Replace(MakeShard make, std::function<void(absl::Status)> done) {
  Post([this, make = std::move(make), done = std::move(done)] {
    Refuse(absl::FailedPreconditionError(
        "the job was restored, drop the update and pull; its members join again"));
    absl::StatusOr<std::unique_ptr<Shard>> made = make();
    if (made.ok()) {
      absl::MutexLock lock(&names_mutex_);
      shard_ = *std::move(made);
      names_ = shard_->cores();
      core_reports_told_ = 0;
      gate_.Watch(shard_.get());
    }
    done(made.status());
  });
}

void ShardThread::SetStandby(std::shared_ptr<LogSink> sink) {
  Post([this, sink = std::move(sink)]() mutable {
    if (sink == nullptr) return gate_.Detach();
    gate_.Attach(std::move(sink));
  });
}

void ShardThread::Abdicate(const absl::Status& why) {
  Post([this, why] { gate_.Abdicate(why); });
}

void ShardThread::OnAcknowledged(std::shared_ptr<LogSink> from, uint64_t position) {
  Post([this, from = std::move(from), position] { gate_.OnAcknowledged(from.get(), position); });
}

void ShardThread::Inspect(bool with_hash, std::function<void(View)> done) {
  Post([this, with_hash, done = std::move(done)] {
    View view;
    view.counters = shard_->counters();
    view.waits_for = shard_->WaitsFor();
    view.parked_reads = reads_.size();
    if (const CoreExchange* cores = shard_->cores()) view.core_report = cores->report();
    if (with_hash) view.parameters_hash = shard_->ParametersHash();
    done(std::move(view));
  });
}

}  // namespace tessera
