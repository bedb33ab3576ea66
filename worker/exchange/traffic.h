// What was moved for a worker.
#ifndef TESSERA_WORKER_EXCHANGE_TRAFFIC_H_
#define TESSERA_WORKER_EXCHANGE_TRAFFIC_H_

#include <cstdint>

namespace tessera {

struct Traffic {
  uint64_t pull_payload_bytes = 0;
  uint64_t push_payload_bytes = 0;
  uint64_t pull_wire_bytes = 0;
  uint64_t push_wire_bytes = 0;
  // Reads outside the exchange: evaluation, joining.
  uint64_t other_payload_bytes = 0;
  // Of all payload bytes, those of exchanges with servers that share memory with the worker: they cross no link.
  uint64_t shared_memory_bytes = 0;
  uint64_t exchanges = 0;

  Traffic& operator+=(const Traffic& other) {
    pull_payload_bytes += other.pull_payload_bytes;
    push_payload_bytes += other.push_payload_bytes;
    pull_wire_bytes += other.pull_wire_bytes;
    push_wire_bytes += other.push_wire_bytes;
    other_payload_bytes += other.other_payload_bytes;
    shared_memory_bytes += other.shared_memory_bytes;
    exchanges += other.exchanges;
    return *this;
  }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_EXCHANGE_TRAFFIC_H_
