// A coordinator that is far away, or has much else to do.
#include "common/rpc/control_channel.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

// More pings than that count as abuse, and servers close the connection.
static_assert(kControlKeepaliveTimeMs >= kKeepaliveTimeMs);

// Passes on what either side sends, each piece after a while.
class SlowLink {
 public:
  SlowLink(int port, absl::Duration latency) : target_(port), latency_(latency) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in here = Loopback(0);
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&here), sizeof(here)) == 0);
    REQUIRE(listen(listener_, 8) == 0);
    socklen_t size = sizeof(here);
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size) == 0);
    port_ = ntohs(here.sin_port);
    threads_.emplace_back([this] { Accept(); });
  }
  ~SlowLink() {
    Heal();
    shutdown(listener_, SHUT_RDWR);
    threads_.front().join();
    threads_.pop_front();
    for (const int end : ends_) shutdown(end, SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
    for (const int end : ends_) close(end);
    close(listener_);
  }
  // Nothing passes any more, and nobody is told.
  void Cut() {
    absl::MutexLock lock(&mutex_);
    is_cut_ = true;
  }
  void Heal() {
    absl::MutexLock lock(&mutex_);
    is_cut_ = false;
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  void Accept() {
    while (true) {
      const int near = accept(listener_, nullptr, nullptr);
      if (near < 0) return;
      const int far = socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in there = Loopback(target_);
      ends_.push_back(near);
      ends_.push_back(far);
      if (connect(far, reinterpret_cast<const sockaddr*>(&there), sizeof(there)) != 0) continue;
      threads_.emplace_back([this, near, far] { Pass(near, far); });
      threads_.emplace_back([this, near, far] { Pass(far, near); });
    }
  }

  void Pass(int from, int to) {
    char buffer[4096];
    while (true) {
      const ssize_t count = recv(from, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      absl::SleepFor(latency_);
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(
            +[](bool* is_cut) { return !*is_cut; }, &is_cut_));
      }
      if (send(to, buffer, static_cast<size_t>(count), MSG_NOSIGNAL) != count) break;
    }
    shutdown(to, SHUT_WR);
  }

  const int target_;
  const absl::Duration latency_;
  int listener_ = -1;
  int port_ = 0;
  absl::Mutex mutex_;
  bool is_cut_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int> ends_;  // the accepting thread's, and after its end the destructor's
  std::list<std::thread> threads_;
};

}  // namespace

class LongStatus final : public v1::Status::Service {
 public:
  grpc::Status Get(grpc::ServerContext*, const v1::StatusRequest*, v1::JobStatus* status) override {
    // Of so many evaluations, about.
    status->set_report_json(std::string(20'000'000, 'x'));
    return grpc::Status::OK;
  }
};

TEST_CASE("a long job's status comes whole", "[rpc]") {
  LongStatus service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  const auto stub =
      v1::Status::NewStub(OpenControlChannel(absl::StrCat("127.0.0.1:", port), Role::kViewer));
  grpc::ClientContext call;
  v1::JobStatus status;
  const grpc::Status got = stub->Get(&call, v1::StatusRequest(), &status);
  CHECK(got.error_message() == "");
  CHECK(status.report_json().size() == 20'000'000);
}

TEST_CASE("a peer whose first word takes longer than the pause between attempts is reached",
          "[rpc]") {
  v1::Status::Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  SlowLink link(port, absl::Milliseconds(2 * kReconnectMsMax));
  const bool is_control = GENERATE(true, false);
  CAPTURE(is_control);
  const auto channel = is_control ? OpenControlChannel(link.address(), Role::kViewer)
                                  : OpenChannel(link.address(), Role::kWorker);
  CHECK(channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(20)));
}

class EndlessStatus final : public v1::Status::Service {
 public:
  grpc::Status Watch(grpc::ServerContext* context, const v1::StatusRequest*,
                     grpc::ServerWriter<v1::JobStatus>* writer) override {
    writer->Write(v1::JobStatus());
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  }
};

TEST_CASE("who only listens hears that the link is dead", "[rpc]") {
  EndlessStatus service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  SlowLink link(port, absl::ZeroDuration());
  const auto stub = v1::Status::NewStub(OpenControlChannel(link.address(), Role::kViewer));
  grpc::ClientContext call;
  // Without keepalive nothing else would end it.
  call.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  const auto reader = stub->Watch(&call, v1::StatusRequest());
  v1::JobStatus status;
  REQUIRE(reader->Read(&status));
  link.Cut();
  CHECK_FALSE(reader->Read(&status));
  const absl::Status end = FromGrpc(reader->Finish());
  CHECK(absl::IsUnavailable(end));
  CHECK(end.message() ==
        "no answer to a ping: it is down, or the link to it is, or carries too little");
  link.Heal();
  server->Shutdown(std::chrono::system_clock::now());
}

}  // namespace tessera
