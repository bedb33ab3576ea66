// How far away a job's servers are.
#ifndef TESSERA_DEPLOY_DOCTOR_MEASURED_DELAY_H_
#define TESSERA_DEPLOY_DOCTOR_MEASURED_DELAY_H_

#include <string>

#include "absl/time/time.h"

namespace tessera {

// How long calls take to the job's server that is furthest away.
struct MeasuredDelay {
  std::string address;
  absl::Duration round_trip;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_MEASURED_DELAY_H_
