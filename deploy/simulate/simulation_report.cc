#include "deploy/simulate/simulation_report.h"

#include "deploy/simulate/simulation.h"
#include "nlohmann/json.hpp"

namespace tessera {

using Json = nlohmann::ordered_json;

std::string SimulationReport(const v1::JobStatus& status, const SimulationOptions& options,
                             int64_t link_bytes) {
  if (status.report_json().empty()) return status.report_json();
  Json report = Json::parse(status.report_json());
  Json restart;
  if (options.restart_after.has_value()) restart = ToSeconds(*options.restart_after);
  report["simulation"] = {{"machines", options.machines},
                          {"cores_per_machine", options.cores_per_machine},
                          {"bandwidth_bytes_per_second", options.bandwidth},
                          {"latency_seconds", ToSeconds(options.latency)},
                          {"loopback_bytes_per_second", options.loopback_bandwidth},
                          {"message_seconds", ToSeconds(options.message_cost)},
                          {"step_seconds", ToSeconds(options.step_time)},
                          {"speed_spread", options.speed_spread},
                          {"slow_worker", options.slow_worker},
                          {"step_jitter", options.step_jitter},
                          {"server_bytes_per_second", options.server_rate},
                          {"failures_per_hour", options.fail_rate},
                          {"restart_seconds", restart},
                          {"stub_gradients", options.stub_gradients},
                          {"server_machines", options.server_machines},
                          {"link_bytes", link_bytes}};
  return report.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
