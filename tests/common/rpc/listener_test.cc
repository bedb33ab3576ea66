// A server's port under too many connections.
#include "common/rpc/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include "common/rpc/grpc_server.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

constexpr int kMost = 4;
constexpr int kWaitMs = 10000;

class Service final : public v1::Status::Service {
  grpc::Status Get(grpc::ServerContext*, const v1::StatusRequest*, v1::JobStatus* reply) override {
    reply->set_job("served");
    return grpc::Status::OK;
  }
};

bool ConnectTo(int port, int fd) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// A connection that says nothing.
class Silent {
 public:
  explicit Silent(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    REQUIRE(ConnectTo(port, fd_));
  }
  Silent(Silent&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Silent() {
    if (fd_ >= 0) close(fd_);
  }

  // The server says something (its settings), or closes; false: neither.
  bool Hears(bool* closed, int wait_ms = kWaitMs) {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, wait_ms) != 1) return false;
    char byte = 0;
    *closed = recv(fd_, &byte, 1, 0) <= 0;
    return true;
  }

 private:
  int fd_;
};

struct Served {
  Served() {
    GrpcServer::Options options{"127.0.0.1:0", {&service}};
    options.connections_per_host_max = kMost;
    auto started = GrpcServer::Start(options);
    REQUIRE(started.ok());
    server = *std::move(started);
  }

  bool Serves() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::Status::NewStub(grpc::CreateCustomChannel(
        server->address(), grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    // gRPC may not have noticed yet that an earlier connection has ended.
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::JobStatus reply;
    return stub->Get(&context, {}, &reply).ok() && reply.job() == "served";
  }

  Service service;
  std::unique_ptr<GrpcServer> server;
};

// As many connections as one host may have.
std::vector<Silent> Fill(const Served& served) {
  std::vector<Silent> silent;
  for (int i = 0; i < kMost; ++i) {
    silent.emplace_back(served.server->port());
    bool closed = true;
    REQUIRE(silent.back().Hears(&closed));
    CHECK_FALSE(closed);
  }
  return silent;
}

TEST_CASE("of one host's connections those beyond the limit are closed, and the others stay",
          "[listener]") {
  Served served;
  const std::vector<Silent> silent = Fill(served);
  for (int i = 0; i < 3; ++i) {
    Silent more(served.server->port());
    bool closed = false;
    REQUIRE(more.Hears(&closed));
    CHECK(closed);
  }
  CHECK(served.server->connections_refused() == 3);
}

// Every connection that is taken makes another, which waits by the time that the first was handed over.
class Flood final : public grpc::experimental::ExternalConnectionAcceptor {
 public:
  Flood(int port, std::atomic<int>* taken, const std::atomic<bool>* over)
      : port_(port), taken_(taken), over_(over) {}
  void HandleNewConnection(NewConnectionParameters* connection) override {
    close(connection->fd);
    ++*taken_;
    if (*over_) return;
    const int another = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // It is reset as it is closed: its port would otherwise not be free for long, and there are only so many.
    const linger reset{1, 0};
    setsockopt(another, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    ConnectTo(port_, another);
    close(another);
  }

 private:
  const int port_;
  std::atomic<int>* const taken_;
  const std::atomic<bool>* const over_;
};

// Each connection could cost a handshake.
TEST_CASE("new connections of one host wait for their turn", "[listener]") {
  Listener::Options options{"127.0.0.1:0", kMost};
  options.new_per_host_per_second = 20;
  auto listener = Listener::Bind(options);
  REQUIRE(listener.ok());
  std::atomic<int> taken{0};
  const std::atomic<bool> over{true};
  (*listener)->Start(std::make_unique<Flood>((*listener)->port(), &taken, &over));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Silent> silent;
  for (int i = 0; i < 3 * kMost; ++i) {
    silent.emplace_back((*listener)->port());
    bool closed = false;
    REQUIRE(silent.back().Hears(&closed));
  }
  const auto taken_within = std::chrono::steady_clock::now() - begin;
  // Each is counted once it was spoken to.
  const auto counted = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (taken < 3 * kMost && std::chrono::steady_clock::now() < counted) std::this_thread::yield();
  CHECK(taken == 3 * kMost);
  // As many as there may be at once come without a pause.
  CHECK(taken_within > std::chrono::milliseconds(2 * kMost * 50 - 60));
  (*listener)->Stop();
}

TEST_CASE("a connection that has ended makes room for another", "[listener]") {
  Served served;
  for (int round = 0; round < 5 * kMost; ++round) {
    // gRPC notices in its own time that the other side has gone.
    bool closed = true;
    for (int tries = 0; closed && tries < 1000; ++tries) {
      Silent one(served.server->port());
      REQUIRE(one.Hears(&closed));
      if (closed) usleep(20000);
    }
    CHECK_FALSE(closed);
  }
  CHECK(served.Serves());
}

TEST_CASE("a caller that was refused gets in once there is room", "[listener]") {
  Served served;
  std::vector<Silent> silent = Fill(served);
  std::future<bool> serves = std::async(std::launch::async, [&] { return served.Serves(); });
  while (served.server->connections_refused() == 0) usleep(1000);
  silent.clear();
  CHECK(serves.get());
}

TEST_CASE("a server that had no file descriptors left takes connections again once it has",
          "[listener]") {
  Served served;
  CHECK(served.Serves());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  bool taken = true;
  // gRPC may yet give back those of an earlier connection: then the next one is taken at once.
  for (int tries = 0; taken && tries < 50; ++tries) {
    usleep(100000);
    // No descriptor is free but one, which the connection itself takes on this side.
    const int next = dup(0);
    REQUIRE(next >= 0);
    close(next);
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(next) + 1;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    Silent waits(served.server->port());
    bool closed = true;
    taken = waits.Hears(&closed, 300);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    if (taken) continue;
    CHECK(waits.Hears(&closed));
    CHECK_FALSE(closed);
  }
  CHECK_FALSE(taken);
  CHECK(served.Serves());
}

TEST_CASE("whoever connects without a pause does not keep a listener from stopping", "[listener]") {
  auto listener = Listener::Bind({"127.0.0.1:0", 1 << 20});
  REQUIRE(listener.ok());
  std::atomic<int> taken{0};
  std::atomic<bool> over{false};
  const int port = (*listener)->port();
  (*listener)->Start(std::make_unique<Flood>(port, &taken, &over));
  const Silent first(port);
  while (taken < 10) usleep(1000);
  auto stops = std::async(std::launch::async, [&] { (*listener)->Stop(); });
  CHECK(stops.wait_for(std::chrono::milliseconds(kWaitMs)) == std::future_status::ready);
  over = true;
  stops.get();
}

TEST_CASE("a name with several addresses is listened on at one port", "[listener]") {
  auto listener = Listener::Bind({"localhost:0", 1});
  // What is free on its first address may be taken on another.
  for (int tries = 1; !listener.ok() && tries < 5; ++tries) {
    listener = Listener::Bind({"localhost:0", 1});
  }
  REQUIRE(listener.ok());
  CHECK((*listener)->port() > 0);
  CHECK((*listener)->address() == "localhost:" + std::to_string((*listener)->port()));
  // It is taken, on whichever address.
  CHECK(Listener::Bind({(*listener)->address(), 1}).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  (*listener)->Stop();
  CHECK(Listener::Bind({(*listener)->address(), 1}).ok());
}

TEST_CASE("all of a machine's addresses are one place to listen", "[listener]") {
  for (const char* any : {"0.0.0.0:0", "[::]:0"}) {
    INFO(any);
    auto listener = Listener::Bind({any, 1});
    REQUIRE(listener.ok());
    Silent reaches((*listener)->port());
  }
}

}  // namespace
}  // namespace tessera
