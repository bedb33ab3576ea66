#include "server/control/saved_states.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {

uint32_t SavedStates::Add(const std::shared_ptr<const SavedState>& state) {
  if (state == nullptr) return 0;
  const auto found = std::find(states_.begin(), states_.end(), state);
  const auto place = static_cast<uint32_t>(found - states_.begin());
  if (found == states_.end()) states_.push_back(state);
  return place + 1;
}

void SavedStates::Save(v1::CoordinatorState* state) const {
  for (const auto& saved : states_) {
    v1::SavedStateText& text = *state->add_saved();
    text.set_manifest(FormatManifest(saved->manifest));
    text.set_from_restore(saved->from_restore);
  }
}

absl::StatusOr<SavedStates> SavedStates::Load(const v1::CoordinatorState& state) {
  SavedStates states;
  for (const v1::SavedStateText& text : state.saved()) {
    auto saved = std::make_shared<SavedState>();
    TESSERA_ASSIGN_OR_RETURN(saved->manifest, ParseManifest("manifest", text.manifest()));
    TESSERA_ASSIGN_OR_RETURN(saved->job,
                             ParseSavedJob("manifest.coordinator", saved->manifest.coordinator));
    saved->from_restore = text.from_restore();
    states.states_.push_back(std::move(saved));
  }
  return states;
}

absl::Status SavedStates::Find(uint32_t place, std::shared_ptr<const SavedState>* out) const {
  if (place > states_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint is number ", place, " of ", states_.size()));
  }
  *out = place == 0 ? nullptr : states_[place - 1];
  return absl::OkStatus();
}

}  // namespace tessera
