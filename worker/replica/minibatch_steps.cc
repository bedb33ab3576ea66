#include "worker/replica/minibatch_steps.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<double> MinibatchSteps::Run(Network* network, LocalOptimizer* optimizer,
                                           const Dataset& data, absl::Span<const uint32_t> rows,
                                           const TrainPoint& point, const StepKey& key,
                                           const Update& update, GradientWork* work) {
  const auto fill = [&](absl::Span<const uint32_t> wanted) {
    return rows_.Fill(data, wanted, network->Room(wanted.size(), data.has_classes()));
  };
  if (work != nullptr) optimizer->Begin(update);
  if (network->holds_next() && ahead_data_ == &data && absl::MakeConstSpan(ahead_) == rows) {
    TESSERA_RETURN_IF_ERROR(network->BeginStepOnNext(key, work));
  } else {
    TESSERA_RETURN_IF_ERROR(network->BeginStep(fill(rows), key, work));
  }
  if (optimizer != nullptr && work == nullptr) {
    TESSERA_RETURN_IF_ERROR(optimizer->Step(update));
  }
  if (network->wants_next() && !point.next.empty()) {
    ahead_data_ = &data;
    ahead_.assign(point.next.begin(), point.next.end());
    TESSERA_RETURN_IF_ERROR(network->SendNext(fill(point.next)));
  }
  TESSERA_ASSIGN_OR_RETURN(const LossAndCount result, network->EndStep());
  return result.loss;
}

}  // namespace tessera
