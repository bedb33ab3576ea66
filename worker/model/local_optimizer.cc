#include "worker/model/local_optimizer.h"

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<LocalOptimizer>> LocalOptimizer::Create(
    const v1::Optimizer& optimizer, Network& network, Backend& backend) {
  if (!optimizer.has_sgd()) return absl::InvalidArgumentError("train.optimizer: want sgd");
  SgdRates rates;
  rates.learning_rate = static_cast<float>(optimizer.sgd().learning_rate());
  rates.momentum = static_cast<float>(optimizer.sgd().momentum());
  rates.weight_decay = static_cast<float>(optimizer.sgd().weight_decay());
  auto made = std::unique_ptr<LocalOptimizer>(new LocalOptimizer(rates, network, backend));
  if (rates.momentum != 0) {
    TESSERA_ASSIGN_OR_RETURN(
        made->momentum_, Buffer<float>::Create(backend.memory(), network.plan().parameter_floats));
  }
  return made;
}

int64_t LocalOptimizer::MemoryNeeded(const v1::Optimizer& optimizer, const NetworkPlan& plan) {
  const bool has_state = static_cast<float>(optimizer.sgd().momentum()) != 0;
  return has_state ? plan.parameter_floats * static_cast<int64_t>(sizeof(float)) : 0;
}

absl::Status LocalOptimizer::Step() {
  backend_.vector().Sgd(network_.plan().parameter_floats, rates_, network_.gradients().data(),
                        momentum_.data(), network_.parameters().data());
  return backend_.Finish();
}

absl::Status LocalOptimizer::Reset() {
  backend_.memory().Zero(momentum_.data(), momentum_.bytes());
  return backend_.Finish();
}

}  // namespace tessera
