#include "server/control/evaluation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/checkpoint/manifest.h"

namespace tessera {

const Evaluation::Seat* Evaluation::FindSeat(const MemberRecord& member) const {
  const auto found = seats_.find(member.rank);
  return found == seats_.end() || found->second.member != member.member ? nullptr : &found->second;
}

bool Evaluation::Takes(const MemberRecord& member) const { return FindSeat(member) != nullptr; }

bool Evaluation::IsParked(const MemberRecord& member) const {
  const Seat* seat = FindSeat(member);
  return open() && seat != nullptr && seat->parked;
}

// While nobody has come yet all are still at work, and the job waits for none of them.
std::vector<Rank> Evaluation::Missing() const {
  std::vector<Rank> missing;
  if (!open()) return missing;
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
  stage_ = Stage::kArriving;
  ++changes_;
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

// Under a barrier the members of one evaluation stand at one step: who begins behind it has its first one later.
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
  const uint64_t next = open() ? evaluation_ : evaluation_ + 1;
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
                      (request.evaluation() == 0 && !open() && evaluation_ > 0 &&
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
  if (!open()) Open(request, members, ending);
  if (request.stage() == v1::ARRIVE && stage_ == Stage::kArriving &&
      request.progress().step() < due_step_) {
    due_step_ = request.progress().step();
    DropLater(members);
  }
  // The last evaluation takes all members, those that began late, too: seats are looked at anew.
  if (ending && !ending_) {
    ending_ = true;
    seen_ = 0;
  }
  OnMembers(members, now);
  const MemberRecord& record = *members.Find(member);
  if (FindSeat(record) == nullptr) {
    // It came when the others had begun without it.
    if (stage_ == Stage::kStanding) Restart();
    AddSeat(record);
  }
  Seat* const seat = &seats_[record.rank];
  if (request.stage() == v1::ARRIVE) {
    seat->arrived = true;
    // What is not of this stage is left out: the rest is kept until the next evaluation.
    seat->arrival = request;
    seat->arrival.clear_constants();
    seat->arrival.clear_scores();
    seat->arrival.DiscardUnknownFields();
  } else if (stage_ == Stage::kArriving || request.attempt() != attempt_) {
    v1::EvaluateReply reply = Fresh();
    reply.set_restart(true);
    replies_.push_back({member, std::move(reply), false});
    return absl::OkStatus();
  }
  seat->parked = true;
  seat->stage = request.stage();
  if (request.stage() == v1::CALIBRATE && seat == &seats_.begin()->second && !constants_) {
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
  if (!open() || seen_ == members.changes()) return;
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
    stage_ = Stage::kClosed;
    --evaluation_;
    due_step_ = history_.empty() ? 0 : history_.back().step();
    clock_->Resume(now);
    return;
  }
  if (lost && stage_ == Stage::kStanding) Restart();
  if (stage_ == Stage::kArriving) {
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
  if (open() && !was && applied_by_all) Advance(now);
}

// The parts of the test rows were dealt out among those who sat here before: scores of other parts do not add up.
void Evaluation::Restart() {
  ++changes_;
  stage_ = Stage::kArriving;
  seen_ = 0;
  constants_.reset();
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
  if (stage_ == Stage::kArriving) {
    // A server that has yet to hear of a removal may commit once more, and readers would see two versions.
    if (!plans_applied_) return;
    for (const auto& [rank, seat] : seats_) {
      if (!seat.arrived) return;
    }
    stage_ = Stage::kStanding;
    constants_.reset();
    ++changes_;
    clock_->Pause(now);
  }
  // Whoever has arrived gets its part of the rows; whoever waits for batch norms' constants gets those that the first
  // seat has made; whoever has scored waits for the result.
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
    } else if (constants_) {
      reply.set_constants(*constants_);
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
  if (facts_.evaluate_every > 0) {
    held_ = std::max(held_, LeastEpoch(seats_) / facts_.evaluate_every);
  }
  v1::HistoryEntry entry = EntryOf(seats_);
  if (facts_.is_of_tensors) {
    entry.set_test_accuracy(MeanScore(seats_));
    entry.clear_precision_at();
  }
  if (!facts_.predicts_classes) {
    entry.set_test_accuracy(std::numeric_limits<double>::quiet_NaN());
    entry.clear_precision_at();
  }
  entry.set_seconds(absl::ToDoubleSeconds(clock_->Trained(now)));
  entry.set_epoch(epochs_->EpochsDone(entry.step()));
  stop_ = stop_ || ending_ || IsLastOfAll(seats_) || facts_.ReachesTarget(entry.test_accuracy());
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
  constants_.reset();
  stage_ = Stage::kClosed;
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
    if (open() && seat.parked) replies_.push_back({seat.member, {}, true});
  }
  seats_.clear();
  constants_.reset();
  stage_ = Stage::kClosed;
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

v1::EvaluationState Evaluation::Save() const {
  v1::EvaluationState state;
  state.set_open(open());
  state.set_arriving(stage_ == Stage::kArriving);
  state.set_plans_applied(plans_applied_);
  state.set_ending(ending_);
  state.set_evaluation(evaluation_);
  state.set_attempt(attempt_);
  state.set_due_step(due_step_);
  state.set_held(held_);
  for (const auto& [rank, seat] : seats_) {
    v1::EvaluationState::Seat& entry = *state.add_seats();
    entry.set_rank(static_cast<uint32_t>(rank.value()));
    seat.Save(&entry);
  }
  state.set_has_constants(constants_.has_value());
  state.set_constants(constants_.value_or(""));
  state.set_stop(stop_);
  *state.mutable_result() = result_;
  for (const v1::HistoryEntry& entry : history_) *state.add_history() = entry;
  for (const auto& [member, evaluation] : told_) {
    state.add_told_members(member.value());
    state.add_told(evaluation);
  }
  return state;
}

absl::Status Evaluation::Load(const v1::EvaluationState& state, const MemberTable& members) {
  stage_ = !state.open() ? Stage::kClosed : state.arriving() ? Stage::kArriving : Stage::kStanding;
  plans_applied_ = state.plans_applied();
  ending_ = state.ending();
  evaluation_ = state.evaluation();
  attempt_ = state.attempt();
  due_step_ = state.due_step();
  held_ = state.held();
  seen_ = 0;
  seats_.clear();
  for (const v1::EvaluationState::Seat& entry : state.seats()) {
    Seat seat;
    TESSERA_RETURN_IF_ERROR(seat.Load(entry));
    // Members of an evaluation that is over may be forgotten.
    const bool is_known =
        members.Find(seat.member) != nullptr || (!open() && members.IsForgotten(seat.member));
    if (!is_known) {
      return absl::InvalidArgumentError(absl::StrCat("member ", seat.member.value(),
                                                     " evaluates in stage ", entry.stage(),
                                                     ", and there is no such member or stage"));
    }
    seats_[Rank(entry.rank())] = std::move(seat);
  }
  if (open() && seats_.empty()) {
    return absl::InvalidArgumentError("an evaluation is open, and nobody evaluates");
  }
  constants_.reset();
  if (state.has_constants()) constants_ = state.constants();
  stop_ = state.stop();
  result_ = state.result();
  history_.assign(state.history().begin(), state.history().end());
  if (stop_ && history_.empty()) {
    return absl::InvalidArgumentError("training has ended, and nothing was evaluated");
  }
  told_.clear();
  for (int i = 0; i < std::min(state.told_members_size(), state.told_size()); ++i) {
    told_[MemberId(state.told_members(i))] = state.told(i);
  }
  replies_.clear();
  return absl::OkStatus();
}

// Requests end with the process that they came to, and come again: until then nobody is parked.
void Evaluation::Reconnect() {
  for (auto& [rank, seat] : seats_) seat.parked = false;
}

}  // namespace tessera
