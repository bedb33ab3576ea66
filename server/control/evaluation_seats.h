// The places of members in one evaluation: what each has said so far, and what their scores add up to.
#ifndef TESSERA_SERVER_CONTROL_EVALUATION_SEATS_H_
#define TESSERA_SERVER_CONTROL_EVALUATION_SEATS_H_

#include <cstdint>
#include <iterator>
#include <map>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "proto/status.pb.h"

namespace tessera {

// Scores.precision_hits has an entry for each of these depths k. The last one is there only where the model has more
// outputs, and counts only where rows have one label each.
constexpr int kPrecisionAt[] = {1, 3, 5, 10};
constexpr int kPrecisions = static_cast<int>(std::size(kPrecisionAt));
// The first numbers of hits, so many, are shown as precision_at; all are top_k_accuracy.
constexpr int kPrecisionsShown = 3;

struct EvaluationSeat {
  MemberId member;
  bool arrived = false;
  // A request of it waits for its answer.
  bool parked = false;
  v1::EvaluateStage stage = v1::ARRIVE;
  v1::EvaluateRequest arrival;
  bool scored = false;
  v1::Scores scores;

  void Save(v1::EvaluationState::Seat* saved) const;
  //   kInvalidArgument  there is no such stage, or scores do not fit
  absl::Status Load(const v1::EvaluationState::Seat& saved);
};

using EvaluationSeats = std::map<Rank, EvaluationSeat>;

// In a job of tensors: the mean score over the rows of the seats that told one; not a number where none did. Sums are
// added in rank order, so that the same words give the same bits.
double MeanScore(const EvaluationSeats& seats);

// What members said when they arrived and what they scored, summed in rank order: all of an entry but its time and
// epoch. precision_at has as many entries as the members' scores, kPrecisionsShown at least.
// A mean of nothing is not a number, which the report writes as null.
v1::HistoryEntry EntryOf(const EvaluationSeats& seats);
// The ends of epochs that all members are past: who is asked to end may not have come to one yet.
uint64_t LeastEpoch(const EvaluationSeats& seats);
// This was the last evaluation for all of them.
bool IsLastOfAll(const EvaluationSeats& seats);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_EVALUATION_SEATS_H_
