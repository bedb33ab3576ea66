#include "server/control/evaluation_seats.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera {

void EvaluationSeat::Save(v1::EvaluationState::Seat* saved) const {
  saved->set_member(member.value());
  saved->set_arrived(arrived);
  saved->set_parked(parked);
  saved->set_stage(stage);
  *saved->mutable_arrival() = arrival;
  saved->set_scored(scored);
  *saved->mutable_scores() = scores;
}

absl::Status EvaluationSeat::Load(const v1::EvaluationState::Seat& saved) {
  if (!v1::EvaluateStage_IsValid(saved.stage()) ||
      saved.scores().precision_hits_size() > kPrecisions) {
    return absl::InvalidArgumentError(absl::StrCat("member ", saved.member(),
                                                   " evaluates in stage ", saved.stage(),
                                                   ", and there is no such member or stage"));
  }
  member = MemberId(saved.member());
  arrived = saved.arrived();
  parked = saved.parked();
  stage = saved.stage();
  arrival = saved.arrival();
  scored = saved.scored();
  scores = saved.scores();
  return absl::OkStatus();
}

v1::HistoryEntry EntryOf(const EvaluationSeats& seats) {
  v1::HistoryEntry entry;
  double train_sum = 0, test_sum = 0;
  uint64_t train_count = 0, correct = 0, rows = 0;
  std::vector<double> hits(kPrecisionsShown);
  // A program with a model of its own counts no hits among its rows, so that of all rows none are known.
  bool counts_hits = true;
  for (const auto& [rank, seat] : seats) {
    entry.set_step(std::max<uint64_t>(entry.step(), seat.arrival.progress().step()));
    entry.set_round(std::max<uint64_t>(entry.round(), seat.arrival.round()));
    train_sum += seat.arrival.loss_sum();
    train_count += seat.arrival.loss_count();
    test_sum += seat.scores.loss_sum();
    correct += seat.scores.correct();
    rows += seat.scores.rows();
    const int depths = seat.scores.precision_hits_size();
    counts_hits = counts_hits && (depths > 0 || seat.scores.rows() == 0);
    if (depths > static_cast<int>(hits.size())) hits.resize(depths);
    for (int i = 0; i < depths; ++i) {
      hits[i] += seat.scores.precision_hits(i);
    }
  }
  entry.set_train_loss(train_sum / train_count);
  entry.set_test_loss(test_sum / rows);
  entry.set_test_accuracy(static_cast<double>(correct) / rows);
  for (size_t i = 0; counts_hits && i < hits.size(); ++i) {
    entry.add_precision_at(hits[i] / (static_cast<double>(kPrecisionAt[i]) * rows));
  }
  return entry;
}

double MeanScore(const EvaluationSeats& seats) {
  double sum = 0;
  uint64_t rows = 0;
  for (const auto& [rank, seat] : seats) {
    if (!seat.scores.has_score_sum()) continue;
    sum += seat.scores.score_sum();
    rows += seat.scores.rows();
  }
  return rows > 0 ? sum / static_cast<double>(rows) : std::numeric_limits<double>::quiet_NaN();
}

uint64_t LeastEpoch(const EvaluationSeats& seats) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const auto& [rank, seat] : seats) {
    least = std::min<uint64_t>(least, seat.arrival.progress().epoch());
  }
  return least;
}

bool IsLastOfAll(const EvaluationSeats& seats) {
  return std::all_of(seats.begin(), seats.end(),
                     [](const auto& entry) { return entry.second.arrival.last(); });
}

}  // namespace tessera
