// The checkpoints that a coordinator's state speaks of, each written once.
#ifndef TESSERA_SERVER_CONTROL_SAVED_STATES_H_
#define TESSERA_SERVER_CONTROL_SAVED_STATES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/saved_job.h"

namespace tessera {

class SavedStates {
 public:
  // Its place, from 1; 0 for nullptr.
  uint32_t Add(const std::shared_ptr<const SavedState>& state);
  void Save(v1::CoordinatorState* state) const;

  // What Save wrote. kInvalidArgument: one of them is none.
  static absl::StatusOr<SavedStates> Load(const v1::CoordinatorState& state);
  // Sets `out` to what has this place. kInvalidArgument: nothing has.
  absl::Status Find(uint32_t place, std::shared_ptr<const SavedState>* out) const;

 private:
  std::vector<std::shared_ptr<const SavedState>> states_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_SAVED_STATES_H_
