#include "server/rpc/grpc_server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/rpc/security.h"
#include "common/rpc/transport.h"

namespace tessera {
namespace {

struct HostPort {
  std::string host;
  int port = 0;
};

// host:port, [ipv6]:port
absl::StatusOr<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort result;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &result.port) || result.port < 0 ||
      result.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("grpc server: address is \"", address,
                                                   "\", want host:port with a port in [0, 65535]"));
  }
  result.host = address.substr(0, colon);
  return result;
}

// Why binding fails: gRPC only says that it does.
absl::Status WhyNotBound(const std::string& address, const HostPort& where) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  absl::string_view host = where.host;
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const int code =
      getaddrinfo(std::string(host).c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (code != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("grpc server: host of \"", address, "\" is not known: ", gai_strerror(code)));
  }
  int error = EADDRINUSE;
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  const int on = 1;
  if (fd >= 0) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0) error = errno;
    close(fd);
  }
  freeaddrinfo(found);
  if (error == EADDRINUSE) {
    return absl::FailedPreconditionError(
        absl::StrCat("grpc server: port ", where.port, " of \"", address,
                     "\" is taken, want a free one; stop its owner or take another"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("grpc server: \"", address, "\" cannot be listened on: ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options) {
  const absl::StatusOr<HostPort> where = Split(options.address);
  if (!where.ok()) return where.status();
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
  grpc::ServerBuilder builder;
  ConfigureServer(&builder);
  int port = 0;
  builder.AddListeningPort(options.address, CurrentSecurity().ForServer(), &port);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  std::unique_ptr<GrpcServer> result(new GrpcServer);
  result->server_ = builder.BuildAndStart();
  if (result->server_ == nullptr || port == 0) {
    result->stopped_ = result->server_ == nullptr;
    return WhyNotBound(options.address, *where);
  }
  result->port_ = port;
  result->address_ = absl::StrCat(where->host, ":", port);
  result->SetServing(true);
  return result;
}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

void GrpcServer::SetServing(bool serving) {
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
}

void GrpcServer::Shutdown(absl::Duration grace) {
  if (stopped_) return;
  stopped_ = true;
  SetServing(false);
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(grace));
}

}  // namespace tessera
