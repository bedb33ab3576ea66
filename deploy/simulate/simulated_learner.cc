#include "deploy/simulate/simulated_learner.h"

#include "common/base/check.h"

namespace tessera {
namespace {

// Any small number that is not 0: rules must have something to work on.
constexpr float kStubUpdate = 1e-9f;

}  // namespace

// The forward pass is behind it when a minibatch begins to wait for its activations' gradient.
class SimulatedLearner::Waits final : public TrainWaits {
 public:
  Waits(PacedWork* work, const TrainPoint& point) : work_(*work), point_(point) {}

  void BeginWait() override {
    // A process that is to end is told so by whatever it waits for next.
    // The forward pass takes its time before the activations are on their way.
    const HalfPace& half = *work_.pace().half;
    if (half.forward > 0) work_.Train(point_.step, half.forward).IgnoreError();
    if (point_.waits != nullptr) point_.waits->BeginWait();
  }
  void EndWait() override {
    if (point_.waits != nullptr) point_.waits->EndWait();
  }

 private:
  PacedWork& work_;
  const TrainPoint& point_;
};

absl::StatusOr<Losses> SimulatedLearner::Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                               const TrainPoint& point) {
  const WorkerPace& pace = work_.pace();
  Waits waits(&work_, point);
  TrainPoint timed = point;
  if (pace.half) timed.waits = &waits;
  // The mathematics takes no simulated time.
  TESSERA_ASSIGN_OR_RETURN(Losses losses, ForwardingLearner::Train(data, rows, timed));
  double share = 0;
  if (!pace.half) {
    // A subnet's step takes the share of the model that it is, and one of more or fewer rows its part of a minibatch.
    share = pace.share->Of(update_keys()) * static_cast<double>(rows.size()) /
            static_cast<double>(pace.batch_size);
  } else if (summed() > 0) {
    share = pace.half->backward;
  }
  // A half without a batch has nothing to compute.
  if (!pace.half || share > 0) TESSERA_RETURN_IF_ERROR(work_.Train(point.step, share));
  return losses;
}

absl::StatusOr<std::vector<float>> SimulatedLearner::Calibrate(const Dataset& data,
                                                               absl::Span<const uint32_t> rows) {
  auto constants = ForwardingLearner::Calibrate(data, rows);
  TESSERA_RETURN_IF_ERROR(constants.status());
  TESSERA_RETURN_IF_ERROR(work_.Evaluate(rows.size()));
  return constants;
}

absl::StatusOr<Scores> SimulatedLearner::Score(const Dataset& data, absl::Span<const uint32_t> rows,
                                               absl::Span<const float> constants) {
  auto scores = ForwardingLearner::Score(data, rows, constants);
  TESSERA_RETURN_IF_ERROR(scores.status());
  TESSERA_RETURN_IF_ERROR(work_.Evaluate(rows.size()));
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
