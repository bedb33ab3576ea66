#include "server/control/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/checkpoint/manifest.h"

namespace tessera {
namespace {

constexpr int kPrecisions = static_cast<int>(std::size(kPrecisionAt));

}  // namespace

const Evaluation::Seat* Evaluation::FindSeat(const MemberRecord& member) const {
  const auto found = seats_.find(member.rank);
  return found == seats_.end() || found->second.member != member.member ? nullptr : &found->second;
}

bool Evaluation::Takes(const MemberRecord& member) const { return FindSeat(member) != nullptr; }

bool Evaluation::IsParked(const MemberRecord& member) const {
  const Seat* seat = FindSeat(member);
  return open_ && seat != nullptr && seat->parked;
}

std::vector<Rank> Evaluation::Missing() const {
  std::vector<Rank> missing;
  if (!open_) return missing;
  for (const auto& [rank, seat] : seats_) {
    if (!seat.parked) missing.push_back(rank);
  }
  // All are at work.
  if (missing.size() == seats_.size()) missing.clear();
  return missing;
}

void Evaluation::AddSeat(const MemberRecord& member) {
  Seat seat;
  seat.member = member.member;
  seats_[member.rank] = std::move(seat);
}

void Evaluation::Open(const v1::EvaluateRequest& request, const MemberTable& members, bool ending) {
  open_ = true;
  ++changes_;
  arriving_ = true;
  ending_ = ending;
  ++evaluation_;
  attempt_ = 1;
  due_step_ = request.progress().step();
  seen_ = 0;
  seats_.clear();
  // Nobody else asks.
  for (auto it = told_.begin(); it != told_.end();) {
    const MemberRecord* const member = members.Find(it->first);
    it = member != nullptr && IsLive(member->state) ? std::next(it) : told_.erase(it);
  }
  AddSeat(*members.Find(MemberId(request.member())));
}

v1::EvaluateReply Evaluation::Fresh() const {
  v1::EvaluateReply reply;
  reply.set_evaluation(evaluation_);
  reply.set_attempt(attempt_);
  return reply;
}

v1::EvaluateReply Evaluation::ResultOf(const v1::HistoryEntry& entry) const {
  v1::EvaluateReply reply = Fresh();
  reply.set_test_loss(entry.test_loss());
  reply.set_test_accuracy(entry.test_accuracy());
  reply.set_train_seconds(entry.seconds());
  reply.set_stop(stop_);
  return reply;
}

void Evaluation::AnswerFinished(MemberId member) {
  v1::EvaluateReply reply = result_;
  reply.set_finished(true);
  replies_.push_back({member, std::move(reply), false});
}

bool Evaluation::IsExpected(const MemberRecord& member) const {
  return !facts_.synchronous || !member.BeginsAfter(due_step_);
}

void Evaluation::DropLater(const MemberTable& members) {
  for (auto it = seats_.begin(); it != seats_.end();) {
    const Seat& seat = it->second;
    const bool later = !seat.arrived && !IsExpected(*members.Find(seat.member));
    it = later ? seats_.erase(it) : std::next(it);
  }
}

absl::Status Evaluation::OnRequest(const v1::EvaluateRequest& request, const MemberTable& members,
                                   bool ending, absl::Time now) {
  const MemberId member(request.member());
  const uint64_t next = open_ ? evaluation_ : evaluation_ + 1;
  if (request.evaluation() > next) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation is ", request.evaluation(), ", want at most ", next));
  }
  if (request.round() >= kSavedNumberEnd) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation ", next, ": round is ", request.round(), ", want one below ", kSavedNumberEnd));
  }
  // Its number was told since: this one has been on its way for long, and was asked again meanwhile.
  const auto told = told_.find(member);
  const bool is_late = request.evaluation() == 0 && told != told_.end() && told->second < next;
  const bool missed = stop_ || is_late ||
                      (request.evaluation() == 0 && !open_ && evaluation_ > 0 &&
                       request.progress().step() <= due_step_);
  if (missed || (request.evaluation() != 0 && request.evaluation() < next)) {
    AnswerFinished(member);
    return absl::OkStatus();
  }
  if (request.stage() == v1::SCORE) {
    const v1::Scores& scores = request.scores();
    if (scores.precision_hits_size() > kPrecisions || scores.correct() > scores.rows()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "evaluation ", next, ": scores are ", scores.correct(), " of ", scores.rows(), " with ",
          scores.precision_hits_size(), " precisions, want at most ", kPrecisions));
    }
  }
  if (!open_) Open(request, members, ending);
  if (request.stage() == v1::ARRIVE && arriving_ && request.progress().step() < due_step_) {
    due_step_ = request.progress().step();
    DropLater(members);
  }
  if (ending && !ending_) {
    ending_ = true;
    seen_ = 0;
  }
  OnMembers(members, now);
  const MemberRecord& record = *members.Find(member);
  if (FindSeat(record) == nullptr) {
    // It came when the others had begun without it.
    if (!arriving_) Restart();
    AddSeat(record);
  }
  Seat* const seat = &seats_[record.rank];
  if (request.stage() == v1::ARRIVE) {
    seat->arrived = true;
    // Without what is not of this stage: it is kept until the next evaluation.
    seat->arrival = request;
    seat->arrival.clear_constants();
    seat->arrival.clear_scores();
    seat->arrival.DiscardUnknownFields();
  } else if (arriving_ || request.attempt() != attempt_) {
    v1::EvaluateReply reply = Fresh();
    reply.set_restart(true);
    replies_.push_back({member, std::move(reply), false});
    return absl::OkStatus();
  }
  seat->parked = true;
  seat->stage = request.stage();
  if (request.stage() == v1::CALIBRATE && seat == &seats_.begin()->second && !has_constants_) {
    has_constants_ = true;
    constants_ = request.constants();
    ++changes_;
  }
  if (request.stage() == v1::SCORE) {
    seat->scored = true;
    seat->scores = request.scores();
    seat->scores.DiscardUnknownFields();
  }
  Advance(now);
  return absl::OkStatus();
}

void Evaluation::OnMembers(const MemberTable& members, absl::Time now) {
  if (!open_ || seen_ == members.changes()) return;
  seen_ = members.changes();
  const size_t before = seats_.size();
  for (auto it = seats_.begin(); it != seats_.end();) {
    const Seat& seat = it->second;
    if (IsLive(members.Find(seat.member)->state)) {
      ++it;
      continue;
    }
    if (seat.parked) replies_.push_back({seat.member, {}, true});
    it = seats_.erase(it);
    ++changes_;
  }
  const bool lost = seats_.size() != before;
  if (seats_.empty()) {
    // Nobody is left to finish it; whoever comes later begins it anew.
    open_ = false;
    --evaluation_;
    due_step_ = history_.empty() ? 0 : history_.back().step();
    clock_->Resume(now);
    return;
  }
  if (lost && !arriving_) Restart();
  if (arriving_) {
    for (const MemberRecord* member : members.Counted()) {
      if (member->state != MemberState::kAdmitted || FindSeat(*member) != nullptr) continue;
      if (IsExpected(*member)) AddSeat(*member);
    }
  }
  Advance(now);
}

void Evaluation::OnPlans(bool applied_by_all, absl::Time now) {
  const bool was = plans_applied_;
  plans_applied_ = applied_by_all;
  if (open_ && !was && applied_by_all) Advance(now);
}

void Evaluation::Restart() {
  ++changes_;
  arriving_ = true;
  seen_ = 0;
  has_constants_ = false;
  constants_.clear();
  ++attempt_;
  Log(LogLevel::kWarning, absl::StrCat("control: evaluation restarts evaluation=", evaluation_,
                                       " attempt=", attempt_, " members=", seats_.size()));
  for (auto& [rank, seat] : seats_) {
    seat.arrived = false;
    seat.scored = false;
    if (!seat.parked) continue;
    seat.parked = false;
    v1::EvaluateReply reply = Fresh();
    reply.set_restart(true);
    replies_.push_back({seat.member, std::move(reply), false});
  }
}

void Evaluation::Advance(absl::Time now) {
  if (arriving_) {
    if (!plans_applied_) return;
    for (const auto& [rank, seat] : seats_) {
      if (!seat.arrived) return;
    }
    arriving_ = false;
    has_constants_ = false;
    ++changes_;
    clock_->Pause(now);
  }
  bool scored = true;
  size_t next_place = 0;
  for (auto& [rank, seat] : seats_) {
    const size_t place = next_place++;
    scored = scored && seat.scored;
    if (!seat.parked || seat.stage == v1::SCORE) continue;
    v1::EvaluateReply reply = Fresh();
    if (seat.stage == v1::ARRIVE) {
      reply.set_parts(seats_.size());
      reply.set_part(place);
    } else if (has_constants_) {
      reply.set_constants(constants_);
    } else {
      continue;
    }
    seat.parked = false;
    replies_.push_back({seat.member, std::move(reply), false});
  }
  if (scored) Finish(now);
}

void Evaluation::Finish(absl::Time now) {
  ++changes_;
  v1::HistoryEntry entry;
  double train_sum = 0, test_sum = 0;
  uint64_t train_count = 0, correct = 0, rows = 0;
  // The ends of epochs that all are past: who is asked to end may not have come to one yet.
  uint64_t epochs = std::numeric_limits<uint64_t>::max();
  std::vector<double> hits(kPrecisions, 0);
  bool last = true;
  for (const auto& [rank, seat] : seats_) {
    entry.set_step(std::max<uint64_t>(entry.step(), seat.arrival.progress().step()));
    entry.set_round(std::max<uint64_t>(entry.round(), seat.arrival.round()));
    last = last && seat.arrival.last();
    epochs = std::min<uint64_t>(epochs, seat.arrival.progress().epoch());
    train_sum += seat.arrival.loss_sum();
    train_count += seat.arrival.loss_count();
    test_sum += seat.scores.loss_sum();
    correct += seat.scores.correct();
    rows += seat.scores.rows();
    for (int i = 0; i < seat.scores.precision_hits_size(); ++i) {
      hits[i] += seat.scores.precision_hits(i);
    }
  }
  if (facts_.evaluate_every > 0) held_ = std::max(held_, epochs / facts_.evaluate_every);
  // 0 / 0 is not a number, and the report says null.
  entry.set_seconds(absl::ToDoubleSeconds(clock_->Trained(now)));
  entry.set_epoch(epochs_->EpochsDone(entry.step()));
  entry.set_train_loss(train_sum / train_count);
  entry.set_test_loss(test_sum / rows);
  entry.set_test_accuracy(static_cast<double>(correct) / rows);
  for (int i = 0; i < kPrecisions; ++i) {
    entry.add_precision_at(hits[i] / (static_cast<double>(kPrecisionAt[i]) * rows));
  }
  stop_ = stop_ || ending_ || last ||
          (facts_.target_accuracy > 0 && entry.test_accuracy() >= facts_.target_accuracy);
  Log(LogLevel::kInfo,
      absl::StrCat("control: evaluated evaluation=", evaluation_, " step=", entry.step(),
                   " train_loss=", entry.train_loss(), " test_loss=", entry.test_loss(),
                   " test_accuracy=", entry.test_accuracy()));
  result_ = ResultOf(entry);
  for (auto& [rank, seat] : seats_) {
    if (seat.parked) replies_.push_back({seat.member, result_, false});
    seat.parked = false;
  }
  history_.push_back(std::move(entry));
  // All have them. They would be kept with the state until the next evaluation.
  has_constants_ = false;
  constants_.clear();
  open_ = false;
  due_step_ = history_.back().step();
  if (stop_) {
    clock_->End(now);
  } else {
    clock_->Resume(now);
  }
}

void Evaluation::GoBack(const std::vector<v1::HistoryEntry>& history, uint64_t held) {
  ++changes_;
  for (const auto& [rank, seat] : seats_) {
    if (open_ && seat.parked) replies_.push_back({seat.member, {}, true});
  }
  seats_.clear();
  has_constants_ = false;
  constants_.clear();
  open_ = false;
  arriving_ = false;
  ending_ = false;
  attempt_ = 0;
  stop_ = false;
  history_ = history;
  held_ = held;
  evaluation_ = history_.size();
  due_step_ = history_.empty() ? 0 : history_.back().step();
  // With its number, by which a request that is asked again much later is known.
  result_ = ResultOf(history_.empty() ? v1::HistoryEntry() : history_.back());
}

std::vector<Evaluation::Reply> Evaluation::TakeReplies() {
  for (const Reply& reply : replies_) {
    if (reply.reply.evaluation() > 0) told_[reply.member] = reply.reply.evaluation();
  }
  return std::exchange(replies_, {});
}

}  // namespace tessera
