// The report of a simulated job: that of a real one (server/control/report.h), in simulated seconds,
// and what was assumed.
//
//   simulation {machines, cores_per_machine, bandwidth_bytes_per_second, latency_seconds,
//               loopback_bytes_per_second, message_seconds, step_seconds, speed_spread, slow_worker,
//               step_jitter, server_bytes_per_second, failures_per_hour, restart_seconds, stub_gradients,
//               server_machines, link_bytes}
//
// Nothing in it depends on the machine that simulated: the peaks of memory are null, and the backend's name
// is "simulated".
#ifndef TESSERA_DEPLOY_SIMULATE_SIMULATION_REPORT_H_
#define TESSERA_DEPLOY_SIMULATE_SIMULATION_REPORT_H_

#include <cstdint>
#include <string>

#include "proto/status.pb.h"

namespace tessera {

struct SimulationOptions;

// `status` is of an ended job. An empty report stays empty. `link_bytes` is what left any machine through its link.
std::string SimulationReport(const v1::JobStatus& status, const SimulationOptions& options,
                             int64_t link_bytes);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SIMULATION_REPORT_H_
