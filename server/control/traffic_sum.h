// What was moved for several workers.
#ifndef TESSERA_SERVER_CONTROL_TRAFFIC_SUM_H_
#define TESSERA_SERVER_CONTROL_TRAFFIC_SUM_H_

#include "proto/coordinator.pb.h"
#include "proto/progress.pb.h"
#include "proto/status.pb.h"

namespace tessera {

void AddTraffic(const v1::Traffic& traffic, v1::Traffic* sum);
v1::Traffic TrafficOf(const v1::WorkerReport& report);
// Adds up what all workers that there ever were have moved, by their reports or, without one, by what they told last.
v1::Traffic TrafficOf(const v1::JobStatus& status);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_TRAFFIC_SUM_H_
