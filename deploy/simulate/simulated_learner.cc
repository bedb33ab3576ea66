#include "deploy/simulate/simulated_learner.h"

#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "deploy/simulate/chance.h"

namespace tessera {
namespace {

constexpr float kStubUpdate = 1e-9f;

SimNanos Scaled(SimNanos time, double factor) {
  return std::llround(static_cast<double>(time) * factor);
}

SimNanos Spread(SimNanos time, double spread, double uniform) {
  return Scaled(time, 1 + spread * (2 * uniform - 1));
}

}  // namespace

SimNanos StepTimeOf(uint64_t seed, uint64_t worker, SimNanos step_time, double spread) {
  return Spread(step_time, spread, UniformChance(seed, kChanceSpeed, worker, 0));
}

SimulatedLearner::SimulatedLearner(std::unique_ptr<Learner> inner, const WorkerPace& pace,
                                   SimulatedWorld* world, int machine, SimulatedProcess* process)
    : ForwardingLearner(std::move(inner)),
      pace_(pace),
      world_(*world),
      machine_(machine),
      process_(*process) {}

absl::Status SimulatedLearner::Work(SimNanos work) {
  const uint64_t ticket = process_.Ticket();
  world_.machines[machine_]->Run(work, [this, ticket] { process_.Wake(ticket); });
  return process_.Wait() ? absl::OkStatus() : absl::CancelledError("cancelled");
}

SimNanos SimulatedLearner::EvaluationTime(size_t rows) const {
  if (!pace_.evaluates) return 0;
  return pace_.step_time * static_cast<SimNanos>(rows) / (3 * pace_.batch_size);
}

absl::StatusOr<Losses> SimulatedLearner::Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                               const TrainPoint& point) {
  TESSERA_ASSIGN_OR_RETURN(Losses losses, ForwardingLearner::Train(data, rows, point));
  SimNanos time = Scaled(pace_.step_time, pace_.share->Of(update_keys()));
  if (pace_.jitter > 0) {
    time = Spread(time, pace_.jitter,
                  UniformChance(pace_.seed, kChanceJitter, pace_.worker, point.step));
  }
  TESSERA_RETURN_IF_ERROR(Work(time));
  return losses;
}

absl::StatusOr<std::vector<float>> SimulatedLearner::Calibrate(const Dataset& data,
                                                               absl::Span<const uint32_t> rows) {
  auto constants = ForwardingLearner::Calibrate(data, rows);
  TESSERA_RETURN_IF_ERROR(constants.status());
  TESSERA_RETURN_IF_ERROR(Work(EvaluationTime(rows.size())));
  return constants;
}

absl::StatusOr<Scores> SimulatedLearner::Score(const Dataset& data, absl::Span<const uint32_t> rows,
                                               absl::Span<const float> constants) {
  auto scores = ForwardingLearner::Score(data, rows, constants);
  TESSERA_RETURN_IF_ERROR(scores.status());
  TESSERA_RETURN_IF_ERROR(Work(EvaluationTime(rows.size())));
  return scores;
}

StubArrays::StubArrays(const ModelShape& shape) {
  for (const ParameterSpec& spec : shape.parameters) {
    memory_.emplace_back(spec.size(), kStubUpdate);
  }
  for (std::vector<float>& memory : memory_) {
    values_.push_back(absl::MakeSpan(memory));
    update_.push_back(absl::MakeConstSpan(memory));
  }
}

}  // namespace tessera
