// Whether a job has connections enough for what its servers are away.
#ifndef TESSERA_DEPLOY_DOCTOR_CONNECTIONS_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_CONNECTIONS_CHECK_H_

#include <cstdint>

#include "common/method/recipe.h"
#include "deploy/doctor/findings.h"
#include "deploy/doctor/measured_delay.h"

namespace tessera {

// A note where an exchange of so many bytes with each of `servers` servers is more than a connection carries in a round
// trip (windows.h), and the way so long that this is less than a gigabyte a second: with how many servers it would not
// be, as each has a connection of its own. Nothing where each server has the whole model.
Findings CheckConnections(const Recipe& recipe, const MeasuredDelay& delay, int servers,
                          int64_t server_bytes);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_CONNECTIONS_CHECK_H_
