// TrainLoop: the cores of what it exchanges.
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "worker/train/train_loop.h"

namespace tessera {

void TrainLoop::Tell(const ExchangeResult& pulled) {
  if (learner_.exchange_keys() != nullptr) learner_.exchange_keys()->Tell(pulled.cores);
}

// A core's keys come while the next minibatches are computed.
void TrainLoop::AskCores() {
  const ExchangeKeys* const keys = learner_.exchange_keys();
  if (keys == nullptr || cores_due_) return;
  const std::optional<uint64_t> wanted = keys->wanted();
  if (!wanted.has_value()) return;
  servers_.AskCores(*wanted);
  cores_due_ = true;
}

absl::Status TrainLoop::TakeCores() {
  if (!cores_due_) return absl::OkStatus();
  cores_due_ = false;
  phases_.Enter(Phase::kWait);
  Begin(TrainWork::kNothing);
  TESSERA_ASSIGN_OR_RETURN(Cores cores, servers_.TakeCores());
  learner_.exchange_keys()->Adopt(std::move(cores));
  phases_.Enter(Phase::kCompute);
  return absl::OkStatus();
}

}  // namespace tessera
