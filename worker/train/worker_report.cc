#include "worker/train/worker_report.h"

namespace tessera {

v1::WorkerReport ReportOf(const TrainLoop& loop, const Traffic& traffic) {
  v1::WorkerReport report;
  const PhaseTimer& phases = loop.phases();
  report.set_steps(loop.steps());
  report.set_examples(loop.examples());
  report.set_exchanges(traffic.exchanges);
  report.set_pull_payload_bytes(traffic.pull_payload_bytes);
  report.set_push_payload_bytes(traffic.push_payload_bytes);
  report.set_pull_wire_bytes(traffic.pull_wire_bytes);
  report.set_push_wire_bytes(traffic.push_wire_bytes);
  report.set_other_payload_bytes(traffic.other_payload_bytes);
  report.set_compute_seconds(phases.seconds(Phase::kCompute));
  report.set_pull_seconds(phases.seconds(Phase::kPull));
  report.set_push_seconds(phases.seconds(Phase::kPush));
  report.set_wait_seconds(phases.seconds(Phase::kWait));
  report.set_evaluate_seconds(phases.seconds(Phase::kEvaluate));
  return report;
}

void AddWork(const v1::WorkerReport& before, v1::WorkerReport* report) {
  report->set_exchanges(report->exchanges() + before.exchanges());
  report->set_pull_payload_bytes(report->pull_payload_bytes() + before.pull_payload_bytes());
  report->set_push_payload_bytes(report->push_payload_bytes() + before.push_payload_bytes());
  report->set_pull_wire_bytes(report->pull_wire_bytes() + before.pull_wire_bytes());
  report->set_push_wire_bytes(report->push_wire_bytes() + before.push_wire_bytes());
  report->set_other_payload_bytes(report->other_payload_bytes() + before.other_payload_bytes());
  report->set_compute_seconds(report->compute_seconds() + before.compute_seconds());
  report->set_pull_seconds(report->pull_seconds() + before.pull_seconds());
  report->set_push_seconds(report->push_seconds() + before.push_seconds());
  report->set_wait_seconds(report->wait_seconds() + before.wait_seconds());
  report->set_evaluate_seconds(report->evaluate_seconds() + before.evaluate_seconds());
}

}  // namespace tessera
