#include "common/rpc/control_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "common/rpc/compression.h"
#include "common/rpc/grpc_library.h"

namespace tessera {

std::shared_ptr<grpc::Channel> OpenControlChannel(const std::string& address, Role role) {
  PrepareGrpc();
  grpc::ChannelArguments arguments;
  RefuseCompression([&arguments](const char* name, int value) { arguments.SetInt(name, value); });
  // A connection of its own: calls must not wait behind the megabytes of a connection to the same address.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMsMin);
  // gRPC takes the least pause between attempts for the time that one attempt is given, too.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMsMax);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kResolveMsMin);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kControlKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kControlKeepaliveTimeoutMs);
  // A process that only listens sends nothing for hours, and must still notice that its peer is gone.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Messages of control are small; a peer that sends more is wrong or hostile.
  arguments.SetMaxReceiveMessageSize(kControlBytesMax);
  return grpc::CreateCustomChannel(address, CurrentSecurity().ForChannel(role), arguments);
}

}  // namespace tessera
