#include "common/rpc/grpc_server.h"

#include <chrono>
#include <mutex>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "common/base/check.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/reflection_service.h"
#include "common/rpc/security.h"
#include "common/rpc/transport.h"

namespace tessera {
absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options) {
  Listener::Options listener;
  listener.address = options.address;
  listener.connections_per_host_max = options.connections_per_host_max;
  listener.is_tls = CurrentSecurity().serves_tls();
  std::unique_ptr<GrpcServer> result(new GrpcServer);
  TESSERA_ASSIGN_OR_RETURN(result->listener_, Listener::Bind(listener));
  static std::once_flag plugins;
  // Both plugins are global to gRPC and must be there before the first server is built.
  std::call_once(plugins, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    AddReflectionToServers();
  });
  grpc::ServerBuilder builder;
  ConfigureServer(&builder);
  if (options.receive_bytes_max > 0) {
    builder.SetResourceQuota(
        grpc::ResourceQuota("connections").Resize(static_cast<size_t>(options.receive_bytes_max)));
  }
  using Acceptance = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  // Connections come from the listener, which counts them, and not from a port of gRPC's own.
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      Acceptance::FROM_FD, CurrentSecurity().ForServer());
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  result->server_ = builder.BuildAndStart();
  TESSERA_CHECK(result->server_ != nullptr);
  // Connections are taken only once there is a server to hand them to.
  result->listener_->Start(std::move(acceptor));
  result->SetServing(true);
  return result;
}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

std::shared_ptr<grpc::Channel> GrpcServer::OpenWithin() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kControlBytesMax);
  return server_->InProcessChannel(arguments);
}

void GrpcServer::SetServing(bool serving) {
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
}

void GrpcServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr || stopped_) return;
  stopped_ = true;
  // Health goes first: whoever watches it stops sending calls here.
  SetServing(false);
  listener_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(grace));
}

}  // namespace tessera
