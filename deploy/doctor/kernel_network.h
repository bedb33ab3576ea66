// What Linux lets connections carry over a long way, where nobody has tuned it.
#ifndef TESSERA_DEPLOY_DOCTOR_KERNEL_NETWORK_H_
#define TESSERA_DEPLOY_DOCTOR_KERNEL_NETWORK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "deploy/doctor/findings.h"
#include "deploy/doctor/measured_delay.h"

namespace tessera {

// This machine's settings of TCP (ip-sysctl.rst of the Linux documentation); each is absent where it is not told.
struct KernelNetwork {
  std::optional<int64_t> send_buffer_max;     // bytes, the third number of tcp_wmem
  std::optional<int64_t> receive_buffer_max;  // bytes, the third number of tcp_rmem
  std::optional<bool> slow_start_after_idle;
};

KernelNetwork ReadKernelNetwork(const std::string& folder = "/proc/sys/net/ipv4");

// A note for each setting that keeps calls of so many bytes over this way from what a gigabit link carries, with the
// command that changes it: buffers, of which a round trip carries no more than one for each of a call's connections;
// and the slow start of a connection that was idle, as connections of a job are while it computes, by how many round
// trips that is. A call has `connections_max` at most (common/rpc/striping/striping.h).
Findings CheckKernelNetwork(const KernelNetwork& kernel, const MeasuredDelay& delay,
                            int64_t exchanged_bytes, int connections_max);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_KERNEL_NETWORK_H_
