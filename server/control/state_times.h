// When a coordinator's state was kept, and what its times are to whoever goes on from it.
//
// Leases, limits and pauses are as long ago as they were then: the time between is nobody's. The job's own clocks
// (train_seconds, wall_seconds) go on through it, as its workers do.
#ifndef TESSERA_SERVER_CONTROL_STATE_TIMES_H_
#define TESSERA_SERVER_CONTROL_STATE_TIMES_H_

#include <string>

#include "absl/time/time.h"
#include "proto/coordinator_state.pb.h"

namespace tessera {

// A state is kept this often, whether it has changed or not: it tells until when the job went on at least.
constexpr absl::Duration kStateAgeMax = absl::Seconds(30);

struct StateMoment {
  // By the clock of this name (common/base/steady_clock.h). Empty: nobody else has it.
  absl::Time steady;
  std::string clock_name;
  // By a clock that is everybody's, more or less.
  absl::Time day;
};

// The state is of this moment.
void Stamp(const StateMoment& now, v1::CoordinatorState* state);

// A state that was kept by another process, as if it had been kept `now`. The job has gone on since then, for
// `longest` at most: beyond that nobody was left who waited for a coordinator.
void ShiftTimes(const StateMoment& now, absl::Duration longest, v1::CoordinatorState* state);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_STATE_TIMES_H_
