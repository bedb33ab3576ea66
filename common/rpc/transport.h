// How connections are set up, in one place: both ends must agree on sizes, keepalive and limits.
#ifndef TESSERA_COMMON_RPC_TRANSPORT_H_
#define TESSERA_COMMON_RPC_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>

#include "common/rpc/security.h"
#include "common/rpc/windows.h"

namespace tessera {

// The most bytes of an HTTP/2 DATA frame. Each frame costs a 9-byte piece of a system call that takes few pieces.
constexpr int64_t kFrameBytesMax = int64_t{4} << 20;
// The most calls at once on one connection; a worker has two or three.
constexpr int kStreamsPerConnectionMax = 32;
// The time after which a connection that has not said what it is is closed, in milliseconds.
constexpr int kHandshakeTimeoutMs = 20000;
// A connection on which nothing comes for this time is pinged. If the ping is not answered for the timeout, the peer
// or its link is gone: calls end with UNAVAILABLE. A ping waits until the link has carried what was written before it,
// some 1.3 MiB (gRPC writes 1 MiB at once, and the kernel holds a send buffer): a shorter timeout would take a link of
// less than a megabit per second for a dead one, again at each attempt. Who is lost as a whole is found by leases.
constexpr int kKeepaliveTimeMs = 10000;
constexpr int kKeepaliveTimeoutMs = 60000;

// Opens a connection that is not shared with other channels to the same address, with the process's security
// (security.h), for calls of `role`. It connects when it is used.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address, Role role = Role::kWorker);

// Makes the same settings on the server's side. A taken port is an error (gRPC would share it).
void ConfigureServer(grpc::ServerBuilder* builder);

// Keeps large buffers in the process once they were paid for. gRPC allocates and frees megabytes
// for each message; by default malloc returns them to the kernel, and the page faults to get them
// back cost more than the transfer. Call first thing in main.
void ConfigureAllocator();

// Called in a process whose memory is limited, before what it holds for long: what is freed goes back to the system at
// once, and connections, one for each call, read and write in small pieces, with narrow windows. That costs some of
// their speed, most of it where the way is long.
void LimitMemory();

// Called after LimitMemory, before the first connection: windows become as wide as planned, and where there is room for
// it connections read, write and keep what they have freed as without a limit, and calls go on several.
void UseRoom(const WindowPlan& plan);

// The bytes that a connection then holds, at most, while messages of `bytes` in all come or go on it: chunks, narrow
// windows and buffers.
int64_t LimitedConnectionBytes(int64_t bytes);

// The bytes that a message takes on a connection: gRPC's 5-byte prefix and HTTP/2's 9 bytes per frame. An
// estimate: the end of a stream, window updates and pings are not in it.
int64_t WireBytes(int64_t message_bytes);
// The bytes of a call's HEADERS frames, both ways, once the connection's header tables are warm: an estimate.
constexpr int64_t kCallWireBytes = 150;

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_TRANSPORT_H_
