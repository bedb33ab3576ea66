// Where a coordinator keeps its state, so that another process can go on in its place.
#ifndef TESSERA_SERVER_CONTROL_STATE_STORE_H_
#define TESSERA_SERVER_CONTROL_STATE_STORE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator_state.pb.h"

namespace tessera {

// One write at a time; the rest may be called beside it.
class StateStore {
 public:
  virtual ~StateStore() = default;

  // Once this returns OK the state is kept, whatever becomes of this process. On an error the coordinator
  // may go on no longer: another one may have taken over, or will go on from an earlier state.
  virtual absl::Status Write(const v1::CoordinatorState& state) = 0;
  // A job may go on before a write has returned, where it takes long: nobody takes over while this process
  // lives. Whoever goes on from an earlier state finds out (CoordinatorWord.changes).
  virtual bool MayLag() const { return false; }
  // Nobody else can have taken over by `now`.
  virtual bool IsHeld(absl::Time now) const = 0;
  // In words, for people.
  virtual std::string Describe() const = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_STATE_STORE_H_
