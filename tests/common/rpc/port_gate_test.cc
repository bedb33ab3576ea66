// The gate before a server of gRPC, which reads and writes by it.
#include "common/rpc/port_gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include "common/rpc/grpc_server.h"
#include "common/rpc/transport.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

constexpr int kWaitMs = 10000;
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Calls end when they are told to.
class Service final : public v1::Status::CallbackService {
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::StatusRequest*,
                                v1::JobStatus* reply) override {
    reply->set_job("served");
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

std::string Frame(char type, char flags, int stream, const std::string& payload = "") {
  const auto size = static_cast<char>(payload.size());
  return std::string("\0\0", 2) + size + type + flags + std::string("\0\0", 2) +
         static_cast<char>(stream >> 8) + static_cast<char>(stream) + payload;
}

std::string Field(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

std::string Begin(int stream) {
  return Frame(1, 4, stream,
               Field(":method", "POST") + Field(":scheme", "http") +
                   Field(":path", "/tessera.v1.Status/Get") + Field(":authority", "x") +
                   Field("content-type", "application/grpc") + Field("te", "trailers"));
}

// A client that writes what it likes.
class Raw {
 public:
  explicit Raw(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    Write(kPreface + Frame(4, 0, 0));
  }
  ~Raw() { close(fd_); }

  // What the server does not take is lost: it has closed.
  void Write(const std::string& bytes) {
    static_cast<void>(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  bool IsClosed() {
    std::string bytes(1 << 16, '\0');
    pollfd waiting{fd_, POLLIN, 0};
    while (poll(&waiting, 1, kWaitMs) == 1) {
      if (recv(fd_, &bytes[0], bytes.size(), 0) <= 0) return true;
    }
    return false;
  }

 private:
  int fd_;
};

struct Served {
  Served() {
    auto started = GrpcServer::Start({"127.0.0.1:0", {&service}});
    REQUIRE(started.ok());
    server = *std::move(started);
  }

  bool Answers(int calls) {
    const auto stub = v1::Status::NewStub(OpenChannel(server->address()));
    for (int i = 0; i < calls; ++i) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      v1::JobStatus reply;
      if (!stub->Get(&context, {}, &reply).ok() || reply.job() != "served") return false;
    }
    return true;
  }

  Service service;
  std::unique_ptr<GrpcServer> server;
};

TEST_CASE("gRPC of this process reads and writes by the gate", "[port_gate]") {
  CHECK(GateIsInForce());
}

TEST_CASE("a connection beyond the limits is closed, and those within them are served",
          "[port_gate]") {
  Served served;
  const uint64_t before = ConnectionsClosedByGate();
  // More calls than a client may make before it has acknowledged SETTINGS.
  CHECK(served.Answers(300));
  CHECK(ConnectionsClosedByGate() == before);
  std::string bytes;
  SECTION("calls without an acknowledgement") {
    for (int i = 0; i < 2000; ++i) bytes += Begin(2 * i + 1);
  }
  SECTION("calls that are reset") {
    bytes += Frame(4, 1, 0);
    for (int i = 0; i < 2000; ++i) {
      bytes += Begin(2 * i + 1) + Frame(3, 0, 2 * i + 1, std::string("\0\0\0\x8", 4));
    }
  }
  SECTION("pings") {
    bytes += Frame(4, 1, 0);
    for (int i = 0; i < 2000; ++i) bytes += Frame(6, 0, 0, std::string(8, 'p'));
  }
  Raw raw(served.server->port());
  raw.Write(bytes);
  CHECK(raw.IsClosed());
  CHECK(ConnectionsClosedByGate() == before + 1);
  CHECK(served.Answers(100));
}

// A connection of the process itself may get the number that a watched one had.
TEST_CASE("descriptors whose connection is over are other files' again", "[port_gate]") {
  Served served;
  for (int i = 0; i < 20; ++i) {
    {
      Raw raw(served.server->port());
      raw.Write(std::string(3, 'x'));
    }
    CHECK(served.Answers(20));
  }
}

}  // namespace
}  // namespace tessera
