#include "common/rpc/transport.h"

#include <malloc.h>

#include <algorithm>

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "common/base/check.h"
#include "common/base/sanitizer.h"
#include "common/rpc/chunk.h"
#include "common/rpc/compression.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/grpc_library.h"
#include "common/rpc/limited_memory.h"

// The function is there where a program is linked with tcmalloc.
extern "C" int MallocExtension_SetNumericProperty(const char* property, size_t value)
    __attribute__((weak));

namespace tessera {
namespace {

// Whether connections read and write in small pieces; set once, before the first of them.
bool pieces_are_small = false;
// gRPC reads into pieces of 64 KiB, so many at a time.
constexpr int kLimitedReadBytes = 256 << 10;

template <typename Set>
void SetBuffers(Set set) {
  const int chunk = static_cast<int>(kChunkBytes);
  if (pieces_are_small) {
    const bool are_narrow = CurrentWindows() == Windows::kNarrow;
    set(GRPC_ARG_HTTP2_BDP_PROBE, are_narrow ? 0 : 1);
    if (are_narrow) set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, chunk);
    set(GRPC_ARG_TCP_READ_CHUNK_SIZE, kLimitedReadBytes);
    set(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, kLimitedReadBytes / 4);
    set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kLimitedReadBytes);
    set(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, chunk);
    return;
  }
  // Without probing a connection's window stays near 1 MiB and the sender stalls at every message;
  // with it, gRPC opens up to 32 MiB, as the link holds them (windows.h).
  set(GRPC_ARG_HTTP2_BDP_PROBE, 1);
  // gRPC reads a quarter to one chunk at a time (docs/design/transfer.md).
  set(GRPC_ARG_TCP_READ_CHUNK_SIZE, chunk);
  set(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, chunk / 4);
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20);
  set(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 2 * chunk);
}

// Calls set(name, value) for what both ends have in common.
template <typename Set>
void SetCommon(Set set) {
  SetBuffers(set);
  RefuseCompression(set);
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, static_cast<int>(kFrameBytesMax));
  set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, static_cast<int>(kMessageBytesMax));
  set(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A pull that waits for others sends nothing for long; its connection must still be watched.
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address, Role role) {
  PrepareGrpc();
  grpc::ChannelArguments arguments;
  SetCommon([&arguments](const char* name, int value) { arguments.SetInt(name, value); });
  // Channels to one address would otherwise share a connection, and one slow stream its window.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Retries live in the client, where the exchange number makes them harmless.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // A server that is started again is found within a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMsMax);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kResolveMsMin);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, CurrentSecurity().ForChannel(role), arguments);
}

void ConfigureServer(grpc::ServerBuilder* builder) {
  PrepareGrpc();
  SetCommon([builder](const char* name, int value) { builder->AddChannelArgument(name, value); });
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  // Clients ping every kKeepaliveTimeMs; more often than half of that counts as abuse.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kKeepaliveTimeMs / 2);
}

void ConfigureAllocator() {
  if (kHasSanitizer) return;
  // glibc takes no larger mmap threshold than this one.
  TESSERA_CHECK(mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1);
  TESSERA_CHECK(mallopt(M_TRIM_THRESHOLD, 512 << 20) == 1);
  TESSERA_CHECK(mallopt(M_TOP_PAD, 16 << 20) == 1);
  // Two arenas are enough: each keeps buffers of its own, and gRPC's few threads share them.
  TESSERA_CHECK(mallopt(M_ARENA_MAX, 2) == 1);
}

void LimitMemory() {
  SetMemoryIsLimited();
  SetWindows(Windows::kNarrow);
  SetStripes(1);
  pieces_are_small = true;
  if (kHasSanitizer) return;
  if (MallocExtension_SetNumericProperty != nullptr) {
    TESSERA_CHECK(MallocExtension_SetNumericProperty("tcmalloc.aggressive_memory_decommit", 1) ==
                  1);
    return;
  }
  // gRPC's pieces, too, leave no holes between what stays.
  TESSERA_CHECK(mallopt(M_MMAP_THRESHOLD, 48 << 10) == 1);
  TESSERA_CHECK(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
  TESSERA_CHECK(mallopt(M_TOP_PAD, 128 << 10) == 1);
}

void UseRoom(const WindowPlan& plan) {
  SetWindows(plan.kind());
  SetStripes(plan.stripes());
  if (!plan.keeps_freed()) return;
  pieces_are_small = false;
  if (MallocExtension_SetNumericProperty != nullptr) {
    TESSERA_CHECK(MallocExtension_SetNumericProperty("tcmalloc.aggressive_memory_decommit", 0) ==
                  1);
  }
  ConfigureAllocator();
}

int64_t LimitedConnectionBytes(int64_t bytes) {
  // A chunk, a window's worth behind it, the pieces that the socket is read into, and an eighth for
  // what the allocator adds to a piece.
  return std::min<int64_t>(2 * bytes, 3 * kChunkBytes) * 9 / 8 + (int64_t{64} << 10);
}

int64_t WireBytes(int64_t message_bytes) {
  // gRPC's own head of a message has five bytes, and each HTTP/2 frame has one of nine.
  const int64_t bytes = message_bytes + 5;
  return bytes + 9 * ((bytes + kFrameBytesMax - 1) / kFrameBytesMax);
}

}  // namespace tessera
