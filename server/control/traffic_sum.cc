#include "server/control/traffic_sum.h"

namespace tessera {

void AddTraffic(const v1::Traffic& traffic, v1::Traffic* sum) {
  sum->set_exchanges(sum->exchanges() + traffic.exchanges());
  sum->set_pull_payload_bytes(sum->pull_payload_bytes() + traffic.pull_payload_bytes());
  sum->set_push_payload_bytes(sum->push_payload_bytes() + traffic.push_payload_bytes());
  sum->set_pull_wire_bytes(sum->pull_wire_bytes() + traffic.pull_wire_bytes());
  sum->set_push_wire_bytes(sum->push_wire_bytes() + traffic.push_wire_bytes());
  sum->set_other_payload_bytes(sum->other_payload_bytes() + traffic.other_payload_bytes());
  sum->set_shared_memory_bytes(sum->shared_memory_bytes() + traffic.shared_memory_bytes());
}

v1::Traffic TrafficOf(const v1::WorkerReport& report) {
  v1::Traffic traffic;
  traffic.set_exchanges(report.exchanges());
  traffic.set_pull_payload_bytes(report.pull_payload_bytes());
  traffic.set_push_payload_bytes(report.push_payload_bytes());
  traffic.set_pull_wire_bytes(report.pull_wire_bytes());
  traffic.set_push_wire_bytes(report.push_wire_bytes());
  traffic.set_other_payload_bytes(report.other_payload_bytes());
  traffic.set_shared_memory_bytes(report.shared_memory_bytes());
  return traffic;
}

v1::Traffic TrafficOf(const v1::JobStatus& status) {
  v1::Traffic sum = status.unreported();
  for (const v1::WorkerReport& report : status.worker_reports()) {
    AddTraffic(TrafficOf(report), &sum);
  }
  return sum;
}

}  // namespace tessera
