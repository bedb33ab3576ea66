#include "worker/train/worker_report.h"

#include "worker/exchange/traffic.h"

namespace tessera {

v1::WorkerReport ReportOf(const TrainLoop& loop) {
  v1::WorkerReport report;
  const PhaseTimer& phases = loop.phases();
  const Traffic traffic = loop.traffic();
  report.set_steps(loop.steps());
  report.set_examples(loop.examples());
  report.set_exchanges(traffic.exchanges);
  report.set_pull_payload_bytes(traffic.pull_payload_bytes);
  report.set_push_payload_bytes(traffic.push_payload_bytes);
  report.set_pull_wire_bytes(traffic.pull_wire_bytes);
  report.set_push_wire_bytes(traffic.push_wire_bytes);
  report.set_other_payload_bytes(traffic.other_payload_bytes);
  report.set_shared_memory_bytes(traffic.shared_memory_bytes);
  report.set_compute_seconds(phases.seconds(Phase::kCompute));
  report.set_pull_seconds(phases.seconds(Phase::kPull));
  report.set_push_seconds(phases.seconds(Phase::kPush));
  report.set_wait_seconds(phases.seconds(Phase::kWait));
  report.set_evaluate_seconds(phases.seconds(Phase::kEvaluate));
  return report;
}

}  // namespace tessera
