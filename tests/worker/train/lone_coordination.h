// A coordinator for workers of which none is lost: what a train loop needs beside its servers.
#ifndef TESSERA_TESTS_WORKER_TRAIN_LONE_COORDINATION_H_
#define TESSERA_TESTS_WORKER_TRAIN_LONE_COORDINATION_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "worker/train/coordination.h"

namespace tessera {

// What the coordinator would say to one of K workers that live to the end. Evaluates alone.
class LoneCoordination : public Coordination {
 public:
  LoneCoordination(int64_t part, int64_t parts, int64_t steps)
      : part_(part), parts_(parts), steps_(steps) {}

  absl::Status BeginTraining() override { return absl::OkStatus(); }
  absl::StatusOr<EpochCut> BeginEpoch(uint64_t epoch, uint64_t step) override {
    return EpochCut{parts_, part_, steps_, epoch * steps_, 0};
  }
  absl::StatusOr<EvaluationPlace> Arrive(const Arrival& arrival) override {
    arrivals.push_back(arrival);
    return EvaluationPlace{};
  }
  absl::StatusOr<std::optional<std::vector<float>>> ShareConstants(
      const EvaluationPlace& place, std::vector<float> constants) override {
    return std::optional<std::vector<float>>(std::move(constants));
  }
  absl::StatusOr<std::optional<EvaluationResult>> Score(const EvaluationPlace& place,
                                                        const EvaluationScores& scores) override {
    this->scores.push_back(scores);
    return std::optional<EvaluationResult>(
        EvaluationResult{0, 0, scores.correct >= stop_at_correct});
  }
  Exchange drain_exchange() const override { return drain; }
  int64_t step_budget() const override { return budget; }
  void SetProgress(const TrainProgress& progress) override { last_progress = progress; }

  std::vector<Arrival> arrivals;
  std::vector<EvaluationScores> scores;
  TrainProgress last_progress;
  uint64_t stop_at_correct = ~uint64_t{0};
  Exchange drain{0};
  int64_t budget = 0;

 private:
  const int64_t part_;
  const int64_t parts_;
  const int64_t steps_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_LONE_COORDINATION_H_
