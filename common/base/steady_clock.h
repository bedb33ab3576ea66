// The clock of leases, time limits and measured times.
//
// It goes on evenly whatever is done to the system's clock, which a person, a time server or a virtual
// machine's host may set forward or back at any time. Only log lines tell the time of day.
#ifndef TESSERA_COMMON_BASE_STEADY_CLOCK_H_
#define TESSERA_COMMON_BASE_STEADY_CLOCK_H_

#include <chrono>
#include <string>

#include "absl/time/time.h"

namespace tessera {

// The time since some moment that all of a process have in common. Two such times may be compared and subtracted;
// they mean nothing as a date, nor to a process whose clock has another name.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// The clock's name, which tells the machine's starts and its clocks apart. Empty: not known, nobody else has this
// clock.
const std::string& SteadyClockName();

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_STEADY_CLOCK_H_
