#include "server/shard/served_shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera {

ServedShard::ServedShard(std::unique_ptr<Shard> shard)
    : shard_(std::move(shard)), gate_(shard_.get()) {}

bool ServedShard::Work(bool had_events, absl::Time now) {
  const bool worked = shard_->Advance(now);
  // The gate settles before reads are answered: an answer may only tell what the standby has.
  if (worked || had_events) gate_.Settle();
  // Before anybody reads: whoever is told of a checkpoint must find that it has been made.
  TakeCopy();
  if (worked || had_events) {
    AnswerReads();
    GrantReservations();
    TellCoreReport();
  }
  return worked;
}

void ServedShard::Refuse(const absl::Status& why) {
  // Lists are moved out first, as a refusal may lead to a new read.
  for (ParkedRead& read : std::exchange(reads_, {})) read.fail(why);
  for (ParkedReserve& reserve : std::exchange(reservations_, {})) reserve.granted(why);
  gate_.Refuse(why);
}

void ServedShard::TakeCopy() {
  std::optional<ShardCopy> copy = shard_->TakeCopy();
  if (!copy.has_value()) return;
  gate_.Append(CopiedEvent{copy->order});
  copy_taken_(*std::move(copy));
}

void ServedShard::Rest(MemberId member, Exchange after, IdleNotice word) {
  shard_->Rest(member, after, word);
  if (word.number > 0) gate_.Append(RestEvent{member, after, word});
}

void ServedShard::AnswerReads() {
  for (size_t i = 0; i < reads_.size();) {
    if (reads_[i].answer()) {
      reads_.erase(reads_.begin() + i);
    } else {
      ++i;
    }
  }
}

// Others count by it: who takes over must have begun the same selection.
void ServedShard::TellCoreReport() {
  const CoreExchange* const cores = shard_->cores();
  // Each report is told once; the number changes with every report.
  if (cores == nullptr || cores->report_number() == core_reports_seen_) return;
  core_reports_seen_ = cores->report_number();
  gate_.Say([this, number = core_reports_seen_](const absl::Status& status) {
    if (!status.ok()) return;
    core_reports_told_ = number;
    const std::optional<CoreReport> report = core_report();
    if (report && core_listener_) core_listener_(*report);
  });
}

std::optional<CoreReport> ServedShard::core_report() const {
  const CoreExchange* const cores = shard_->cores();
  if (cores == nullptr || cores->report_number() != core_reports_told_) return std::nullopt;
  return cores->report();
}

// By their turns, so that the room beside the next push goes to the one that is folded after it.
void ServedShard::GrantReservations() {
  // Turns change as pushes are folded, so that they are looked up each time; equal turns keep the order of arrival.
  if (reservations_.size() > 1) {
    for (ParkedReserve& r : reservations_) r.pushes_before = shard_->stage().PushesBefore(r.member);
    std::stable_sort(reservations_.begin(), reservations_.end(),
                     [](const ParkedReserve& a, const ParkedReserve& b) {
                       return a.pushes_before < b.pushes_before;
                     });
  }
  for (size_t i = 0; i < reservations_.size();) {
    const bool is_member = shard_->plan().Find(reservations_[i].member) != nullptr;
    if (is_member && !shard_->Reserve(reservations_[i].member, reservations_[i].bytes)) {
      ++i;
      continue;
    }
    const ParkedReserve reserve = std::move(reservations_[i]);
    reservations_.erase(reservations_.begin() + i);
    reserve.granted(is_member ? absl::OkStatus() : shard_->members().NotMember(""));
  }
}

void ServedShard::Reserve(MemberId member, int64_t bytes,
                          std::function<void(absl::Status)> granted) {
  reservations_.push_back({member, bytes, std::move(granted)});
}

void ServedShard::Accept(ReceivedPush push,
                         std::function<void(absl::StatusOr<PushAccepted>)> done) {
  const MemberId member = push.member;
  const Exchange exchange = push.exchange;
  // The shard takes the push: what the log is to have of it is kept apart. Both refer to one copy of the bytes.
  std::optional<ReceivedPush> logged;
  if (gate_.records_pushes()) logged = push.Share();
  absl::StatusOr<PushAccepted> accepted = shard_->Accept(std::move(push));
  if (!accepted.ok() || accepted->need_keys) return done(std::move(accepted));
  if (logged && !accepted->duplicate) gate_.Append(PushEvent{*std::move(logged)});
  gate_.SayAccepted(member, exchange,
                    [done = std::move(done), accepted = *accepted](const absl::Status& status) {
                      if (!status.ok()) return done(status);
                      done(accepted);
                    });
}

void ServedShard::CancelRead(uint64_t read) {
  // The answer may have been sent meanwhile: then there is nothing to cancel.
  const auto found = std::find_if(reads_.begin(), reads_.end(),
                                  [read](const ParkedRead& r) { return r.id == read; });
  if (found == reads_.end()) return;
  const ParkedRead cancelled = std::move(*found);
  reads_.erase(found);
  cancelled.fail(absl::CancelledError("pull: the client has gone"));
}

void ServedShard::ReadOutside(MemberId member, Exchange after, IdleNotice word, absl::Time now,
                              std::function<void(absl::StatusOr<ReadResult>)> done) {
  // Values are for those who train; who has a member's number has joined.
  if (shard_->plan().Find(member) == nullptr) {
    return done(shard_->members().NotMember(absl::StrCat("pull from member ", member.value())));
  }
  // What was whole while it rested, as when whoever lacked a push was removed, is not to wait for it from now on.
  if (word.number > 0 && !word.rests) {
    while (Work(/*had_events=*/true, now)) {
    }
  }
  Rest(member, after, word);
  shard_->replica().FoldAccepted(now);
  gate_.Say([done = std::move(done), read = shard_->ReadNow()](const absl::Status& status) {
    if (!status.ok()) return done(status);
    done(read);
  });
}

std::vector<Shard::Removed> ServedShard::SetPlan(const Plan& plan) {
  shard_->SetPlan(plan);
  gate_.Append(PlanEvent{plan});
  // Answers of members that the plan dropped are due now.
  gate_.OnMembers();
  const std::deque<Shard::Removed>& removed = shard_->members().removed();
  return {removed.begin(), removed.end()};
}

Exchange ServedShard::Propose(uint64_t proposal, Exchange first) {
  const Exchange promised = shard_->Propose(proposal, first);
  gate_.Append(ProposeEvent{proposal, promised});
  return promised;
}

void ServedShard::Withdraw(uint64_t proposal) {
  shard_->Withdraw(proposal);
  gate_.Append(WithdrawEvent{proposal});
}

void ServedShard::SetCoreListener(std::function<void(const CoreReport&)> listener) {
  // Whoever begins to listen hears of the report that is open.
  core_listener_ = std::move(listener);
  if (const std::optional<CoreReport> report = core_report(); report && core_listener_) {
    core_listener_(*report);
  }
}

void ServedShard::AskCore(const CoreQuestion& question) {
  if (shard_->cores() == nullptr) return;
  shard_->cores()->Ask(question);
  gate_.Append(CoreQuestionEvent{question});
}

void ServedShard::Order(const CopyOrder& order,
                        std::function<void(absl::StatusOr<ShardCopy>)> taken) {
  if (absl::Status status = shard_->Order(order); !status.ok()) return taken(std::move(status));
  copy_taken_ = std::move(taken);
  // It may be due already, and what is to be folded next is none of it.
  TakeCopy();
}

// Whoever waited has been refused (ShardThread::AwaitReplacement): only the gate refers to the old shard.
void ServedShard::Replace(std::unique_ptr<Shard> shard) {
  // Counters of the process go on, though the parameters are another shard's.
  shard->CountOn(shard_->counters());
  shard_ = std::move(shard);
  core_reports_seen_ = 0;
  core_reports_told_ = 0;
  gate_.Watch(shard_.get());
}

}  // namespace tessera
