#include "worker/train/state_keeper.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/check.h"

namespace tessera {

absl::StatusOr<PrivateState> StateKeeper::State() {
  TESSERA_ASSIGN_OR_RETURN(PrivateState state, learner_.private_state());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<absl::Span<float>> held_back, servers_.held_back());
  for (size_t p = 0; p < held_back.size(); ++p) {
    state.arrays.push_back({absl::StrCat("residual.", p), held_back[p]});
  }
  if (const absl::Span<float> learned = servers_.learned(); !learned.empty()) {
    state.arrays.push_back({"codec", learned, /*may_lack=*/true});
  }
  return state;
}

absl::Status StateKeeper::OnExchange(const ExchangeResult& result, const WorkerCursor& cursor,
                                     bool waits) {
  if (store_ == nullptr || result.checkpoint_number <= number_) return absl::OkStatus();
  number_ = result.checkpoint_number;
  put_off_.emplace(result.checkpoint_number, result.checkpoint_step);
  return waits ? absl::OkStatus() : SavePutOff(cursor);
}

absl::Status StateKeeper::SavePutOff(const WorkerCursor& cursor) {
  if (!put_off_) return absl::OkStatus();
  const auto [number, folder_step] = *std::exchange(put_off_, std::nullopt);
  TESSERA_RETURN_IF_ERROR(learner_.PrepareToSave());
  TESSERA_ASSIGN_OR_RETURN(const PrivateState state, State());
  store_->Save(number, folder_step, cursor, state);
  return absl::OkStatus();
}

absl::Status StateKeeper::SaveLast(const WorkerCursor& cursor) {
  if (store_ == nullptr) return absl::OkStatus();
  // As it was before the evaluation, which is made again where it was not for the end alone.
  if (learner_.keeps_values()) {
    TESSERA_RETURN_IF_ERROR(learner_.EndEvaluation().status());
  }
  TESSERA_RETURN_IF_ERROR(SavePutOff(cursor));
  TESSERA_RETURN_IF_ERROR(learner_.PrepareToSave());
  TESSERA_ASSIGN_OR_RETURN(const PrivateState state, State());
  store_->SaveLast(cursor, state);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<WorkerCursor>> StateKeeper::Load() {
  TESSERA_ASSIGN_OR_RETURN(const PrivateState state, State());
  TESSERA_ASSIGN_OR_RETURN(std::optional<WorkerCursor> saved, store_->Load(state));
  // What others held back may have been dealt to this one.
  TESSERA_RETURN_IF_ERROR(servers_.AdoptHeldBack());
  if (saved.has_value()) TESSERA_RETURN_IF_ERROR(learner_.AdoptPrivateState());
  return saved;
}

}  // namespace tessera
