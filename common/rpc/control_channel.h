// Connections to the coordinator: small messages but for a long job's status, and a peer that comes back is found soon.
#ifndef TESSERA_COMMON_RPC_CONTROL_CHANNEL_H_
#define TESSERA_COMMON_RPC_CONTROL_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "common/rpc/security.h"

namespace tessera {

// The pause between attempts to connect, in milliseconds: well under the shortest lease.
constexpr int kReconnectMsMin = 50;
constexpr int kReconnectMsMax = 500;
// The time that an attempt to connect may take, in milliseconds: with TLS some three round trips, to the other
// side of the earth or to a machine that has much else to do.
constexpr int kConnectMsMax = 2000;
// The least time between two questions for a name, in milliseconds: whoever it stands for may have moved.
constexpr int kResolveMsMin = 500;
// A peer that does not answer a ping for the timeout is gone, or its link: its calls end with UNAVAILABLE, and a new
// connection is tried. Nothing large waits before a ping here. Servers take no more pings than transport.h says.
constexpr int kControlKeepaliveTimeMs = 10000;
constexpr int kControlKeepaliveTimeoutMs = 10000;
// The most bytes of a reply: a status has every evaluation of the job, some hundred bytes each.
constexpr int kControlBytesMax = 256 << 20;

// Opens a connection of its own, never by an HTTP proxy, for calls of `role`. It connects when it is used.
std::shared_ptr<grpc::Channel> OpenControlChannel(const std::string& address,
                                                  Role role = Role::kWorker);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CONTROL_CHANNEL_H_
